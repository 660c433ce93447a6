//! A connection with bounds on the time of its first head, and of its silence.

use std::{
    fmt,
    future::Future,
    io::{self, IoSlice},
    mem::MaybeUninit,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep_until},
};

use super::{
    head::{Head, Progress},
    heard::{Heard, Mark},
    stats::{Connections, Open, Reason},
};
use crate::{
    permit::Permit,
    time::{Clock, Timestamp, TokioClock},
};

/// Bounds and counts that all connections of a listener share.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) head_within: Duration,
    pub(super) head_at_most: usize,
    pub(super) idle_for: Duration,
    /// Hears the connections of TLS whose heads are not seen.
    pub(super) heard: Option<Heard>,
    pub(super) clock: TokioClock,
    pub(super) connections: Connections,
}

/// The count and the permits that a connection holds until it is closed.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) _open: Open,
    pub(super) _permits: SmallVec<[Permit; 2]>,
}

/// A connection of a [`Guarded`](super::Guarded) listener.
///
/// It counts as open until it is dropped, also after an upgrade, such as to WebSocket. Once one of
/// its bounds is passed, reading and writing are errors, so the server closes it. It finds that out
/// when it reads, writes or flushes, for which it is woken.
///
/// ```
/// use tokio::{io::{AsyncReadExt, AsyncWriteExt}, net::{TcpListener, TcpStream}};
/// use tollgate::listen::Guarded;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut listener = Guarded::new(TcpListener::bind("127.0.0.1:0").await?).build()?;
/// let mut client = TcpStream::connect(listener.local_addr()?).await?;
/// let (mut connection, address) = listener.accept().await;
/// assert_eq!(address, client.local_addr()?);
/// assert!(connection.get_ref().nodelay().is_ok());
///
/// client.write_all(b"GET / HTTP/1.1\r\n\r\n").await?;
/// let mut head = [0; 18];
/// connection.read_exact(&mut head).await?;
/// # Ok(()) }
/// ```
pub struct GuardedIo<Io> {
    /// Boxed, because servers move a connection some twenty times until it is served.
    guard: Box<Guard<Io>>,
}

/// A connection, and what its bounds need.
struct Guard<Io> {
    io: Io,
    bounds: Arc<Bounds>,
    _held: Held,
    /// `None` once the first head is complete, and the server has all of it.
    opening: Option<Opening>,
    /// Set while a service must be called before the connection is heard.
    mark: Option<Mark>,
    accepted: Timestamp,
    /// The time of the last byte, or of the admission.
    active: Timestamp,
    /// Wake the tasks that read and that write, which may be two, no later than a bound is passed.
    /// They may wake them earlier: bytes do not move them.
    timers: [Option<Pin<Box<Sleep>>>; 2],
    /// The reason why reading and writing are errors.
    closed: Option<Reason>,
    peer: Peer,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// The address by which the server knows it.
    pub(super) address: Option<SocketAddr>,
    /// A balancer said so.
    pub(super) is_proxied: bool,
}

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

/// The first bytes of a connection.
///
/// The head of HTTP/1 reaches the server once it is complete: until then, the server would keep it
/// in a buffer of 16 kB, and parse all of it again with each byte.
struct Opening {
    head: Head,
    progress: Progress,
    /// Bytes that the server has not got yet.
    bytes: Vec<u8>,
}

impl Opening {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.progress == Progress::Incomplete {
            self.progress = self.head.read(bytes);
        }
    }

    /// Moves bytes to the buffer, unless the server must wait for more. `is_ended` if there will
    /// be no more.
    fn give(&mut self, buf: &mut ReadBuf<'_>, is_ended: bool) -> bool {
        let waits = self.progress == Progress::Incomplete && self.head.is_of_lines();
        if is_ended || !waits && !self.bytes.is_empty() {
            let count = self.bytes.len().min(buf.remaining());
            buf.put_slice(&self.bytes[..count]);
            self.bytes.drain(..count);
            return true;
        }
        false
    }
}

impl<Io> GuardedIo<Io> {
    pub(super) fn new(
        io: Io,
        bounds: Arc<Bounds>,
        held: Held,
        accepted: Timestamp,
        peer: Peer,
    ) -> Self {
        let opening = Opening {
            head: Head::new(bounds.head_at_most),
            progress: Progress::Incomplete,
            bytes: Vec::new(),
        };
        let guard = Guard {
            io,
            _held: held,
            opening: Some(opening),
            mark: None,
            accepted,
            active: bounds.clock.now(),
            timers: [None, None],
            closed: None,
            peer,
            bounds,
        };
        Self {
            guard: Box::new(guard),
        }
    }

    /// Returns the connection below, such as that of TCP or TLS.
    pub fn get_ref(&self) -> &Io {
        &self.guard.io
    }

    /// Returns the client's address by the [PROXY protocol](super::Guarded::proxy_protocol), if the
    /// connection came with one.
    pub fn proxied(&self) -> Option<SocketAddr> {
        let peer = self.guard.peer;
        peer.address.filter(|_| peer.is_proxied)
    }
}

impl<Io> Guard<Io> {
    fn error(reason: Reason) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, reason.to_string())
    }

    fn check(&self) -> io::Result<()> {
        self.closed
            .map_or(Ok(()), |reason| Err(Self::error(reason)))
    }

    fn close(&mut self, reason: Reason) -> io::Error {
        self.bounds.connections.closed(reason, None);
        self.closed = Some(reason);
        Self::error(reason)
    }

    /// Returns `true` once the first request was seen, by the guard or by the server.
    fn is_heard(&mut self) -> bool {
        if self.mark.as_ref().is_some_and(Mark::is_heard) {
            self.mark = None;
        }
        let opening = self.opening.as_ref();
        let is_seen = opening.is_none_or(|opening| opening.progress == Progress::Complete);
        is_seen && self.mark.is_none()
    }

    /// Returns the earliest time at which a bound is passed, and the reason.
    fn deadline(&mut self) -> (Timestamp, Reason) {
        let idle = self.active.saturating_add(self.bounds.idle_for);
        let late = self.accepted.saturating_add(self.bounds.head_within);
        if late <= idle && !self.is_heard() {
            (late, Reason::HeadLate)
        } else {
            (idle, Reason::Idle)
        }
    }

    /// Waits until a bound is passed. Returns the error then.
    fn poll_bounds(&mut self, cx: &mut Context<'_>, direction: Direction) -> Poll<io::Error> {
        let (deadline, reason) = self.deadline();
        let deadline = self.bounds.clock.instant(deadline);
        let timer = &mut self.timers[direction as usize];
        let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        loop {
            ready!(timer.as_mut().poll(cx));
            if deadline <= timer.deadline() {
                return Poll::Ready(self.close(reason));
            }
            timer.as_mut().reset(deadline);
        }
    }

    /// Passes on the answer of the connection below, unless it waits beyond a bound.
    fn bounded<T>(
        &mut self,
        cx: &mut Context<'_>,
        direction: Direction,
        answer: Poll<io::Result<T>>,
        bytes: impl Fn(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        let Poll::Ready(answer) = answer else {
            return self.poll_bounds(cx, direction).map(Err);
        };
        if answer.as_ref().is_ok_and(|answer| bytes(answer) > 0) {
            self.active = self.bounds.clock.now();
            // One that always has bytes never waits.
            let (deadline, reason) = self.deadline();
            if deadline <= self.active {
                return Poll::Ready(Err(self.close(reason)));
            }
        }
        Poll::Ready(answer)
    }
}

impl<Io> Drop for Guard<Io> {
    fn drop(&mut self) {
        if self.closed.is_none() && !self.is_heard() {
            self.bounds.connections.ended_early();
        }
    }
}

impl<Io: AsyncRead + Unpin> Guard<Io> {
    /// Reads the first bytes, up to the end of the head, or more.
    fn poll_opening(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut is_ended = false;
        while let Some(opening) = &mut self.opening {
            if opening.give(buf, is_ended) {
                if opening.progress == Progress::Complete && opening.bytes.is_empty() {
                    self.opening = None;
                }
                return Poll::Ready(Ok(()));
            }
            let mut space = [MaybeUninit::uninit(); 1024];
            let mut space = ReadBuf::uninit(&mut space);
            let answer = Pin::new(&mut self.io).poll_read(cx, &mut space);
            let read = space.filled();
            opening.add(read);
            if opening.progress == Progress::TooLong {
                return Poll::Ready(Err(self.close(Reason::HeadLong)));
            }
            if opening.head.is_tls() && self.mark.is_none() {
                let heard = self.bounds.heard.as_ref().zip(self.peer.address);
                self.mark = heard.map(|(heard, peer)| heard.expect(peer));
            }
            ready!(self.bounded(cx, Direction::Read, answer, |()| read.len()))?;
            is_ended = read.is_empty();
        }
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for GuardedIo<Io> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self.get_mut().guard;
        this.check()?;
        if this.opening.is_some() {
            return this.poll_opening(cx, buf);
        }
        let before = buf.filled().len();
        let answer = Pin::new(&mut this.io).poll_read(cx, buf);
        let bytes = buf.filled().len() - before;
        this.bounded(cx, Direction::Read, answer, |()| bytes)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for GuardedIo<Io> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self.get_mut().guard;
        this.check()?;
        let answer = Pin::new(&mut this.io).poll_write(cx, buf);
        this.bounded(cx, Direction::Write, answer, |bytes| *bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self.get_mut().guard;
        this.check()?;
        let answer = Pin::new(&mut this.io).poll_write_vectored(cx, bufs);
        this.bounded(cx, Direction::Write, answer, |bytes| *bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.guard.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self.get_mut().guard;
        this.check()?;
        let answer = Pin::new(&mut this.io).poll_flush(cx)?;
        // Also if nothing is left to send: while a request is handled, a server may do no more than
        // flush.
        if let Poll::Ready(error) = this.poll_bounds(cx, Direction::Write) {
            return Poll::Ready(Err(error));
        }
        answer.map(Ok)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self.get_mut().guard;
        this.check()?;
        let answer = Pin::new(&mut this.io).poll_shutdown(cx);
        this.bounded(cx, Direction::Write, answer, |()| 0)
    }
}

impl<Io> fmt::Debug for GuardedIo<Io> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Guard {
            opening,
            mark,
            closed,
            ..
        } = &*self.guard;
        f.debug_struct("GuardedIo")
            .field("is_heard", &(opening.is_none() && mark.is_none()))
            .field("closed", closed)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "tonic")]
mod tonic {
    use std::any::Any;

    use tonic::transport::server::{Connected, TcpConnectInfo};

    use super::GuardedIo;

    /// Returns the information of the connection below, with the client's address by the PROXY
    /// protocol.
    impl<Io: Connected> Connected for GuardedIo<Io> {
        type ConnectInfo = Io::ConnectInfo;

        fn connect_info(&self) -> Self::ConnectInfo {
            let mut info = self.get_ref().connect_info();
            let proxied = self.proxied();
            if proxied.is_some() {
                let info: &mut dyn Any = &mut info;
                if let Some(tcp) = info.downcast_mut::<TcpConnectInfo>() {
                    tcp.remote_addr = proxied;
                }
                #[cfg(feature = "tonic-tls")]
                if let Some(tls) =
                    info.downcast_mut::<tonic::transport::server::TlsConnectInfo<TcpConnectInfo>>()
                {
                    tls.get_mut().remote_addr = proxied;
                }
            }
            info
        }
    }
}
