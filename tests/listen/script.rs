//! A listener whose connections are pipes in memory, in an order that a test gives.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWriteExt, DuplexStream, ReadBuf, duplex},
    time::{sleep, timeout},
};
use tollgate::listen::{Guarded, GuardedIo, GuardedListener, Listen};

/// The bytes that a pipe holds in each direction.
const PIPE: usize = 64 * 1024;

#[derive(Default)]
struct Arrivals {
    waiting: VecDeque<io::Result<(DuplexStream, SocketAddr)>>,
    accepting: Option<Waker>,
}

/// The clients of a listener. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Clients(Arc<Mutex<Arrivals>>);

pub(super) struct Pipes(Clients);

impl Clients {
    pub(super) fn listener(&self) -> Guarded<Pipes> {
        Guarded::new(Pipes(self.clone()))
    }

    fn arrive(&self, arrival: io::Result<(DuplexStream, SocketAddr)>) {
        let mut arrivals = self.0.lock().unwrap();
        arrivals.waiting.push_back(arrival);
        if let Some(waker) = arrivals.accepting.take() {
            waker.wake();
        }
    }

    /// Connects from an address.
    pub(super) fn connect(&self, address: &str) -> DuplexStream {
        let address: IpAddr = address.parse().unwrap();
        let (client, server) = duplex(PIPE);
        self.arrive(Ok((server, SocketAddr::new(address, 4711))));
        client
    }

    /// Lets the system fail to accept.
    pub(super) fn fail(&self, kind: io::ErrorKind) {
        self.arrive(Err(kind.into()));
    }

    /// Returns the number of clients that were not accepted yet.
    pub(super) fn waiting(&self) -> usize {
        self.0.lock().unwrap().waiting.len()
    }
}

impl Listen for Pipes {
    type Io = DuplexStream;
    type Addr = SocketAddr;

    fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(DuplexStream, SocketAddr)>> {
        let mut arrivals = self.0.0.lock().unwrap();
        match arrivals.waiting.pop_front() {
            Some(arrival) => Poll::Ready(arrival),
            None => {
                arrivals.accepting = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::from(([127, 0, 0, 1], 80)))
    }

    fn client(address: &SocketAddr) -> Option<SocketAddr> {
        // The placeholder of clients without an address.
        (!address.ip().is_unspecified()).then_some(*address)
    }
}

/// Returns the next connection; `None` if none is admitted within a while.
pub(super) async fn next<L: Listen, Io: Send + 'static>(
    listener: &mut GuardedListener<L, Io>,
) -> Option<(GuardedIo<Io>, L::Addr)> {
    timeout(Duration::from_millis(1), listener.accept())
        .await
        .ok()
}

/// A connection as a server that reads until it is closed.
pub(super) struct Read<'a, Io>(pub(super) &'a mut GuardedIo<Io>);

impl<Io: AsyncRead + Unpin> Future for Read<'_, Io> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut bytes = [0; 4096];
        loop {
            let mut buf = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *self.0).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {}
                other => return other,
            }
        }
    }
}

/// Sends bytes, each of the pieces after a while.
pub(super) async fn dribble(client: &mut DuplexStream, pieces: &[&[u8]], pause: Duration) {
    for piece in pieces {
        sleep(pause).await;
        // The server may have closed it.
        if client.write_all(piece).await.is_err() {
            return;
        }
    }
}
