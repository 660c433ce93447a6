//! Accepts connections, and admits those that the limits allow.

use std::{
    fmt,
    future::{Future, poll_fn},
    io,
    net::{IpAddr, SocketAddr},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_core::Stream;
use smallvec::SmallVec;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Sleep, sleep, timeout},
};

use super::{
    io::{Bounds, GuardedIo, Held, Peer},
    proxy,
    stats::{Connections, Open, Reason},
};
use crate::{
    key::{Key, Networks, PeerIp},
    permit::Permit,
    store::{BoxFuture, Check},
    time::Clock,
};

/// A listener that accepts connections, below a [`Guarded`](super::Guarded): that of TCP or of a
/// Unix socket, or your own.
///
/// ```
/// use std::{io, net::SocketAddr, task::{Context, Poll}};
/// use tokio::net::{TcpListener, TcpStream};
/// use tollgate::listen::{Guarded, Listen};
///
/// /// Sends small answers at once.
/// struct WithoutDelay(TcpListener);
///
/// impl Listen for WithoutDelay {
///     type Io = TcpStream;
///     type Addr = SocketAddr;
///
///     fn poll_accept(
///         &mut self,
///         cx: &mut Context<'_>,
///     ) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
///         self.0.poll_accept(cx).map_ok(|(stream, address)| {
///             // An error here means that the connection has ended: its first read fails, too.
///             let _ = stream.set_nodelay(true);
///             (stream, address)
///         })
///     }
///
///     fn local_addr(&self) -> io::Result<SocketAddr> {
///         self.0.local_addr()
///     }
///
///     fn client(address: &SocketAddr) -> Option<SocketAddr> {
///         Some(*address)
///     }
///
///     fn refuse(stream: TcpStream) {
///         <TcpListener as Listen>::refuse(stream);
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let listener = WithoutDelay(TcpListener::bind("127.0.0.1:0").await?);
/// let listener = Guarded::new(listener).per_client(16).build()?;
/// # drop(listener);
/// # Ok(()) }
/// ```
pub trait Listen: Send + Unpin + 'static {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Send + Unpin + 'static;
    /// The address of its other end.
    type Addr: Send + 'static;

    /// Accepts the next connection.
    ///
    /// # Errors
    ///
    /// When the system cannot accept one. An error about one connection (refused, aborted, reset)
    /// is followed by the next call at once, any other after a pause.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Self::Io, Self::Addr)>>;

    /// Returns the address that the listener is bound to.
    ///
    /// # Errors
    ///
    /// When the system does not tell.
    fn local_addr(&self) -> io::Result<Self::Addr>;

    /// Returns the address by which a client is known; `None` if all connections are those of one
    /// machine. Without it, no limit for one client applies, and nobody is trusted.
    fn client(address: &Self::Addr) -> Option<SocketAddr>;

    /// Closes a connection that a limit refused. Drops it, unless there is a faster way.
    fn refuse(io: Self::Io) {
        drop(io);
    }
}

impl Listen for TcpListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        Self::poll_accept(self, cx)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }

    fn client(address: &SocketAddr) -> Option<SocketAddr> {
        Some(*address)
    }

    /// Resets the connection: a socket that is closed in order stays in the memory of the system
    /// for a minute.
    fn refuse(io: TcpStream) {
        #[cfg(unix)]
        // An error means that the connection has ended, so that no reset is needed.
        let _ = rustix::net::sockopt::set_socket_linger(&io, Some(Duration::ZERO));
        drop(io);
    }
}

#[cfg(unix)]
impl Listen for tokio::net::UnixListener {
    type Io = tokio::net::UnixStream;
    type Addr = tokio::net::unix::SocketAddr;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Self::Io, Self::Addr)>> {
        Self::poll_accept(self, cx)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Self::local_addr(self)
    }

    fn client(_: &Self::Addr) -> Option<SocketAddr> {
        None
    }
}

/// A limit for one client: a permit for the key, or none.
pub(super) type ClientLimit = Box<dyn Fn(Key) -> Check<BoxFuture<Option<Permit>>> + Send + Sync>;

/// Makes a connection of TLS, or of another protocol, from one that was accepted.
pub(super) type Handshake<I, O> = Box<dyn Fn(I) -> Check<BoxFuture<io::Result<O>>> + Send + Sync>;

/// Decides which connections are admitted.
pub(super) struct Gate<L: Listen, Io> {
    pub(super) at_most: usize,
    pub(super) bounds: Arc<Bounds>,
    pub(super) trusted: Networks,
    /// Makes keys of addresses.
    pub(super) clients: PeerIp,
    pub(super) limits: Vec<(Reason, ClientLimit)>,
    /// Set if balancers begin with a header of the PROXY protocol: makes the address of a client.
    pub(super) proxied: Option<fn(SocketAddr) -> L::Addr>,
    pub(super) handshake: Handshake<L::Io, Io>,
}

type Admitted<L, Io> = Option<(GuardedIo<Io>, <L as Listen>::Addr)>;

impl<L: Listen, Io> Gate<L, Io> {
    /// Returns the connection, or counts why it was closed.
    async fn admit(
        self: Arc<Self>,
        mut io: L::Io,
        mut address: L::Addr,
        open: Open,
    ) -> Admitted<L, Io> {
        let bounds = &self.bounds;
        let accepted = bounds.clock.now();
        let mut peer = Peer {
            address: L::client(&address),
            is_proxied: false,
        };
        let mut client = self.untrusted(peer.address);
        // A peer without an address is in no network that is trusted.
        if let Some(to_address) = self.proxied
            && peer.address.is_some()
            && client.is_none()
        {
            match proxy::read(&mut io).await {
                Ok(None) => {}
                Ok(Some(source)) => {
                    address = to_address(source);
                    peer = Peer {
                        address: Some(source),
                        is_proxied: true,
                    };
                    client = self.untrusted(peer.address);
                }
                Err(error) => {
                    self.closed(Reason::ProxyHeader, &error);
                    L::refuse(io);
                    return None;
                }
            }
        }
        let mut permits = SmallVec::new();
        if let Some(client) = client {
            let key = self.clients.key_of(client);
            for (reason, limit) in &self.limits {
                let Some(permit) = limit(key).await else {
                    bounds.connections.closed(*reason, None);
                    L::refuse(io);
                    return None;
                };
                permits.push(permit);
            }
        }
        let held = Held {
            _open: open,
            _permits: permits,
        };
        match (self.handshake)(io).await {
            Ok(io) => {
                let io = GuardedIo::new(io, Arc::clone(bounds), held, accepted, peer);
                Some((io, address))
            }
            Err(error) => {
                self.closed(Reason::Handshake, &error);
                None
            }
        }
    }

    /// Returns the address to which the limits of one client apply.
    fn untrusted(&self, address: Option<SocketAddr>) -> Option<IpAddr> {
        let client = address.map(|address| address.ip().to_canonical());
        client.filter(|client| !self.trusted.contain(*client))
    }

    /// Counts a connection that ended in a header or a handshake.
    fn closed(&self, reason: Reason, error: &io::Error) {
        use io::ErrorKind::{ConnectionReset, UnexpectedEof};
        let connections = &self.bounds.connections;
        match error.kind() {
            // Its client went away, as those of health checks do.
            ConnectionReset | UnexpectedEof => connections.ended_early(),
            _ => connections.closed(reason, Some(error)),
        }
    }
}

/// A listener with limits: made by [`Guarded`](super::Guarded).
///
/// With the feature `axum`, it is one for `axum::serve`. It is also a stream of connections that
/// never ends, for `serve_with_incoming` of tonic. A loop of your own calls
/// [`accept`](Self::accept).
///
/// ```
/// use tokio::net::TcpListener;
/// use tollgate::listen::{Guarded, GuardedListener};
///
/// struct Server {
///     listener: GuardedListener<TcpListener>,
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let server = Server { listener: Guarded::new(listener).build()? };
/// assert_ne!(server.listener.local_addr()?.port(), 0);
/// # Ok(()) }
/// ```
pub struct GuardedListener<L: Listen, Io = <L as Listen>::Io> {
    listener: L,
    gate: Arc<Gate<L, Io>>,
    /// Connections that wait for a store, a header, or a handshake. At most as many as are open.
    admitting: JoinSet<Admitted<L, Io>>,
    /// Ends when the system may have handles again.
    pause: Option<Pin<Box<Sleep>>>,
}

impl<L: Listen, Io: Send + 'static> GuardedListener<L, Io> {
    pub(super) fn new(listener: L, gate: Gate<L, Io>) -> Self {
        Self {
            listener,
            gate: Arc::new(gate),
            admitting: JoinSet::new(),
            pause: None,
        }
    }

    /// Accepts the next connection that the limits admit.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio, or in one without timers.
    ///
    /// # Cancellation
    ///
    /// Safe: a connection that was not returned yet is returned by the next call.
    pub async fn accept(&mut self) -> (GuardedIo<Io>, L::Addr) {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Accepts the next connection that the limits admit.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio, or in one without timers.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<(GuardedIo<Io>, L::Addr)> {
        loop {
            let admitted = match self.poll_admitted(cx) {
                Poll::Ready(Some(admitted)) => admitted,
                Poll::Ready(None) | Poll::Pending => ready!(self.poll_next_one(cx)),
            };
            if let Some(admitted) = admitted {
                self.connections().accepted();
                return Poll::Ready(admitted);
            }
        }
    }

    /// Returns the address that the listener is bound to.
    ///
    /// # Errors
    ///
    /// When the system does not tell.
    pub fn local_addr(&self) -> io::Result<L::Addr> {
        self.listener.local_addr()
    }

    /// Returns the counts of its connections.
    pub fn connections(&self) -> &Connections {
        &self.gate.bounds.connections
    }

    /// Returns what became of a connection that waited. `None` if none waits.
    fn poll_admitted(&mut self, cx: &mut Context<'_>) -> Poll<Option<Admitted<L, Io>>> {
        let admitted = ready!(self.admitting.poll_join_next(cx));
        Poll::Ready(admitted.map(|admitted| {
            admitted.unwrap_or_else(|panic| {
                self.connections().closed(Reason::Handshake, Some(&panic));
                None
            })
        }))
    }

    /// Accepts a connection. `None` if it was closed, or waits in a task of its own, so that it
    /// holds up no other.
    fn poll_next_one(&mut self, cx: &mut Context<'_>) -> Poll<Admitted<L, Io>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let (io, address) = match ready!(self.listener.poll_accept(cx)) {
            Ok(accepted) => accepted,
            Err(error) => {
                self.pause = pause_after(&error);
                self.connections().closed(Reason::System, Some(&error));
                return Poll::Ready(None);
            }
        };
        let bounds = &self.gate.bounds;
        let Some(open) = bounds.connections.open(self.gate.at_most) else {
            bounds.connections.closed(Reason::AtMost, None);
            L::refuse(io);
            return Poll::Ready(None);
        };
        let mut admit = Box::pin(Arc::clone(&self.gate).admit(io, address, open));
        // Most wait for nothing. A handshake or a store that panics must not end the server, as it
        // does not in a task.
        match catch_unwind(AssertUnwindSafe(|| admit.as_mut().poll(cx))) {
            Ok(Poll::Ready(admitted)) => return Poll::Ready(admitted),
            Ok(Poll::Pending) => {}
            Err(_) => {
                let cause: &dyn fmt::Display = &"it panicked";
                bounds.connections.closed(Reason::Handshake, Some(cause));
                return Poll::Ready(None);
            }
        }
        let bounds = Arc::clone(bounds);
        self.admitting.spawn(async move {
            let admitted = timeout(bounds.head_within, admit).await;
            admitted.unwrap_or_else(|_| {
                bounds.connections.closed(Reason::HeadLate, None);
                None
            })
        });
        Poll::Ready(None)
    }
}

/// Returns the pause after an error that is about the system, such as one that has no file handles.
fn pause_after(error: &io::Error) -> Option<Pin<Box<Sleep>>> {
    const PAUSE: Duration = Duration::from_millis(100);
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    let is_of_one = matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    );
    (!is_of_one).then(|| Box::pin(sleep(PAUSE)))
}

impl<L: Listen, Io: Send + 'static> Stream for GuardedListener<L, Io> {
    type Item = io::Result<GuardedIo<Io>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let accepted = self.get_mut().poll_accept(cx);
        accepted.map(|(io, _)| Some(Ok(io)))
    }
}

#[cfg(feature = "axum")]
impl<L, Io> axum::serve::Listener for GuardedListener<L, Io>
where
    L: Listen,
    Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    type Io = GuardedIo<Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        Self::accept(self).await
    }

    fn local_addr(&self) -> io::Result<L::Addr> {
        self.listener.local_addr()
    }
}

impl_debug!([L: Listen + fmt::Debug, Io] GuardedListener<L, Io>, |it|
    listener = it.listener, bounds = it.gate.bounds
);
