//! Limits before the request: on connections, from their acceptance to the first head.
//!
//! Most attacks on servers begin before a [layer](crate::RateLimitLayer) sees a request: sockets
//! that send nothing, heads that come byte by byte, floods of connections. [`Guarded`] puts
//! a listener around a listener, for `axum::serve`, for tonic, and for loops of your own. With
//! rates and [calls in flight](crate::InFlight), it makes the budget of one client whole; the page
//! on [public servers](crate::public_servers) says which limit stops what.

mod accept;
mod head;
mod heard;
mod io;
mod proxy;
mod stats;

pub use self::{
    accept::{GuardedListener, Listen},
    heard::{Heard, HeardService},
    io::GuardedIo,
    stats::{ConnectionStats, Connections},
};

use std::{convert::Infallible, fmt, future::Future, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::yield_now,
};

use self::{
    accept::{ClientLimit, Gate, Handshake},
    io::Bounds,
    stats::Reason,
};
use crate::{
    algorithm::{Algorithm, InFlight},
    decision::Cost,
    error::Error,
    key::{Networks, PeerIp},
    limiter::Limiter,
    live_rule::Watch,
    policy::Policy,
    store::{Check, Local, LocalBuilder, Store},
    time::TokioClock,
};

/// A listener around a listener, with limits of connections.
///
#[cfg_attr(feature = "axum", doc = "```no_run")]
#[cfg_attr(not(feature = "axum"), doc = "```text")]
/// use std::{net::SocketAddr, time::Duration};
/// use axum::{Router, routing::get};
/// use tokio::net::TcpListener;
/// use tollgate::{TokenBucket, listen::Guarded};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let listener = Guarded::new(TcpListener::bind("0.0.0.0:3000").await?)
///     .at_most(20_000) // open connections of all
///     .per_client(64) // … of one address
///     .accept(TokenBucket::per_second(20).burst(100)) // new ones of one address
///     .trusting(["10.0.0.0/8"]) // balancers: no limits for one client
///     .head_within(Duration::from_secs(10)) // until the head of the first request is complete
///     .idle_for(Duration::from_secs(120)) // without a byte in either direction
///     .for_axum()?;
///
/// let app = Router::new().route("/", get(async || "hello"));
/// axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
/// # Ok(()) }
/// ```
///
/// | setting | default | a connection beyond it |
/// |---|---|---|
/// | [`at_most`](Self::at_most) | 65,536, or seven eighths of the file handles that the process may open | is closed at once, over TCP by a reset |
/// | [`per_client`](Self::per_client) | none | the same |
/// | [`accept`](Self::accept), [`accept_by`](Self::accept_by) | none | the same |
/// | [`head_within`](Self::head_within) | 10 s | is closed |
/// | [`head_at_most`](Self::head_at_most) | 16 KiB | is closed |
/// | [`idle_for`](Self::idle_for) | 10 minutes | is closed |
///
/// Each is counted by its reason ([`Connections`]), and logged once a minute for each reason
/// (feature `tracing`). What is closed is closed without a response.
///
/// Each listener counts by itself. To limit the connections of one client over several listeners,
/// give [`accept_by`](Self::accept_by) of each the same limiter of an [`InFlight`].
///
/// # Heads
///
/// A connection is heard once the head of its first request is complete: with the empty line of
/// HTTP/1.1, or the end of the first fields of HTTP/2. That is found in the bytes, so it works on
/// TCP, on Unix sockets and in [TLS](#tls), with any server, and without a layer. Protocols that
/// are not HTTP have no heads: their connections are closed after `head_within`. So are those that
/// clients, or balancers, open to have one at hand.
///
/// The server gets the first head of HTTP/1 once it is complete: half a head costs its bytes, not
/// the buffer of a server, and is not parsed again with each byte that comes.
///
/// Only the first head is bounded. A later one may come byte by byte, and a server of hyper keeps
/// 400 kB of it: [`idle_for`](Self::idle_for) stops clients that pause for that long, and
/// [`per_client`](Self::per_client) bounds how many connections one has. The server of axum sets
/// neither a time nor a length for later heads; a loop of your own sets `header_read_timeout` and
/// `max_buf_size` of hyper.
///
/// # TLS
///
/// [`handshake`](Self::handshake) makes connections of TLS from those that the limits admitted,
/// each in a task of its own, so a handshake that never ends holds up nobody, and is closed after
/// [`head_within`](Self::head_within). The heads are found inside of TLS.
///
/// TLS around the guarded listener works, too, such as `tls_config` of tonic. The guard sees
/// records then, and no heads: give it the layer [`Heard`], by which the server reports a request.
/// A listener of your own that makes handshakes in its `accept` holds up all others while one goes
/// on.
///
/// # Balancers
///
/// Behind a balancer, all clients have its address. Either the balancer limits connections, and
/// [`trusting`](Self::trusting) exempts it; or it says whose they are, by the [PROXY
/// protocol](Self::proxy_protocol). The field `X-Forwarded-For` comes too late for limits of
/// connections. Trusted are the addresses of balancers alone, not a network that also has clients
/// or probes: what connects from there has no limits of its own, and with the PROXY protocol it
/// must begin with a header. Choose [`idle_for`](Self::idle_for) longer than the balancer keeps a
/// connection that it does not use, so that it does not ask on one that is being closed.
///
/// # Unix sockets
///
/// Their connections have no address, so only the limits of all apply: `at_most`, `head_within`,
/// `head_at_most` and `idle_for`.
///
/// # Shutdown
///
/// A graceful shutdown works as without it. When the listener is dropped, so are connections that
/// wait for a handshake, a store, or their acceptance.
#[doc(alias("connection limit", "slowloris", "max connections", "idle timeout"))]
#[must_use = "a listener accepts nothing until it is built"]
pub struct Guarded<L: Listen, Io = <L as Listen>::Io> {
    listener: L,
    handshake: Handshake<L::Io, Io>,
    settings: Settings<L::Addr>,
}

struct Settings<A> {
    at_most: Option<usize>,
    per_client: Option<u64>,
    accept: Vec<ClientLimit>,
    clients: PeerIp,
    trusted: Networks,
    proxied: Option<fn(SocketAddr) -> A>,
    bounds: Bounds,
    /// The first setting that is wrong by itself.
    error: Option<Error>,
}

/// A listener for `axum::serve` whose requests have the address of the client as
/// `ConnectInfo<SocketAddr>`.
///
/// ```
/// use tokio::net::TcpListener;
/// use tollgate::listen::{AxumListener, Guarded};
///
/// async fn listen() -> Result<AxumListener<TcpListener>, Box<dyn std::error::Error>> {
///     Ok(Guarded::new(TcpListener::bind("127.0.0.1:0").await?).for_axum()?)
/// }
/// # let _ = listen;
/// ```
#[cfg(feature = "axum")]
pub type AxumListener<L, Io = <L as Listen>::Io> =
    axum::serve::TapIo<GuardedListener<L, Io>, fn(&mut GuardedIo<Io>)>;

impl<L: Listen> Guarded<L> {
    /// Puts limits around a listener.
    pub fn new(listener: L) -> Self {
        Self {
            listener,
            handshake: Box::new(|io| Check::Ready(Ok(io))),
            settings: Settings {
                at_most: None,
                per_client: None,
                accept: Vec::new(),
                clients: PeerIp::new(),
                trusted: Networks::default(),
                proxied: None,
                bounds: Bounds {
                    head_within: Duration::from_secs(10),
                    head_at_most: 16 * 1024,
                    idle_for: Duration::from_secs(600),
                    heard: None,
                    clock: TokioClock::new(),
                    connections: Connections::default(),
                },
                error: None,
            },
        }
    }

    /// Makes a connection of TLS from each that the limits admitted, or another that reads and
    /// writes through it.
    ///
    /// It takes place in a task of its own, and within [`head_within`](Self::head_within). An error
    /// closes the connection, and is counted.
    ///
    /// ```
    /// use tokio::net::TcpListener;
    /// use tokio_rustls::TlsAcceptor;
    /// use tollgate::listen::Guarded;
    ///
    /// # async fn listen(listener: TcpListener, acceptor: TlsAcceptor) -> Result<(), tollgate::Error> {
    /// let listener = Guarded::new(listener)
    ///     .per_client(16)
    ///     .handshake(move |stream| acceptor.accept(stream))
    ///     .build()?;
    /// # drop(listener);
    /// # Ok(()) }
    /// # let _ = listen;
    /// ```
    pub fn handshake<F, H, Io>(self, handshake: F) -> Guarded<L, Io>
    where
        F: Fn(L::Io) -> H + Send + Sync + 'static,
        H: Future<Output = std::io::Result<Io>> + Send + 'static,
        Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let handshake = Arc::new(handshake);
        Guarded {
            listener: self.listener,
            handshake: Box::new(move |io| {
                let handshake = Arc::clone(&handshake);
                Check::Pending(Box::pin(async move {
                    // It is work, and the task that accepts must not do it.
                    yield_now().await;
                    handshake(io).await
                }))
            }),
            settings: self.settings,
        }
    }
}

impl<L: Listen<Addr = SocketAddr>, Io> Guarded<L, Io> {
    /// Reads the client's address from a header of the PROXY protocol, version 1 or 2, with which
    /// each connection of a [trusted](Self::trusting) network begins.
    ///
    /// The limits for one client apply to that address then, unless it is trusted itself, and it
    /// becomes the address of the connection. A trusted peer without a header is closed, because
    /// the protocol forbids to guess; other peers are clients themselves, and a header of theirs is
    /// a wrong request. A header without an address of TCP (`LOCAL`, `UNKNOWN`, Unix sockets), such
    /// as that of a health check, leaves the connection to the balancer.
    ///
    /// Source: [the PROXY protocol](https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt).
    pub fn proxy_protocol(mut self) -> Self {
        self.settings.proxied = Some(|source| source);
        self
    }
}

impl<L: Listen, Io> Guarded<L, Io> {
    /// Sets how many connections may be open at once, of all clients.
    ///
    /// Beyond it, a connection is accepted and reset, so that it does not wait in the queue of the
    /// system in front of others, also one of a [trusted](Self::trusting) network: answer the
    /// probes of an orchestrator on a listener of their own. Leave handles for files, for
    /// connections to stores, and for other listeners.
    ///
    /// Default: 65,536, or seven eighths of the file handles that the process may open (`ulimit
    /// -n`), whichever is less.
    pub fn at_most(mut self, connections: usize) -> Self {
        self.settings.at_most = Some(connections);
        self
    }

    /// Sets how many connections of one client may be open at once, 1 to 2⁴⁰.
    ///
    /// Browsers open six for HTTP/1.1; clients behind one address share it. A connection that a
    /// client lost without a word counts until [`idle_for`](Self::idle_for) is over. A client of
    /// IPv6 may have many networks: see [`clients`](Self::clients).
    pub fn per_client(mut self, connections: u64) -> Self {
        self.settings.per_client = Some(connections);
        self
    }

    /// Limits the new connections of one client, by a rule whose states are kept in memory.
    ///
    /// A connection beyond [`per_client`](Self::per_client) costs nothing under this rule.
    pub fn accept<Rule>(self, rule: Rule) -> Self
    where
        Rule: Algorithm + fmt::Debug,
    {
        self.accept_by(&Limiter::new(
            Policy::new("accept"),
            rule,
            Local::<Rule>::new(),
        ))
    }

    /// Limits the new connections of one client by a [`Limiter`]: a rule that changes, a store that
    /// instances share, or [blocks](crate::store::Blocks).
    ///
    /// The key is the address of the client, as [`PeerIp`] makes it: with the store, policy and
    /// kind of rule of a layer, both share one budget, and a client that the layer blocked is
    /// closed when it connects.
    /// A store over a network is asked by a task of each connection, within
    /// [`head_within`](Self::head_within).
    ///
    /// May be called several times: a connection that one limit refuses stays charged in those
    /// before it, except for what it [holds](crate::Permit).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::net::TcpListener;
    /// use tollgate::{Limiter, Policy, TokenBucket, listen::Guarded, prelude::*};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = Local::new().with_blocks();
    /// let rule = TokenBucket::per_second(20).burst(60);
    /// let limiter = Limiter::new(Policy::new("connections"), rule, store);
    /// let listener = Guarded::new(TcpListener::bind("127.0.0.1:0").await?)
    ///     .accept_by(&limiter)
    ///     .build()?;
    ///
    /// // All later connections of this client are reset.
    /// let mallory: std::net::IpAddr = "192.0.2.7".parse()?;
    /// limiter.block(mallory, Duration::from_secs(3600))?.at_once();
    /// # drop(listener);
    /// # Ok(()) }
    /// ```
    pub fn accept_by<Rule, S>(mut self, limiter: &Limiter<Rule, S>) -> Self
    where
        Rule: Algorithm,
        S: Store<Rule, Error = Infallible, Answer: Send + 'static> + Send + Sync + 'static,
    {
        let policy = limiter.policy().clone();
        let refuses = move |rule: &Rule| match rule.may_delay() {
            false => Ok(()),
            true => Err(Error::new(format!(
                "the rule of the limiter `{policy}` delays, and nothing delays a connection: expected a rule that \
                 refuses; use a `TokenBucket`, or a `LeakyBucket` without a queue"
            ))),
        };
        match limiter.0.rule.watch(refuses) {
            Ok(watch) => self.settings.accept.push(client_limit(limiter, watch)),
            Err(error) => self.settings.is_wrong(error),
        }
        self
    }

    /// Sets the networks of balancers, each an address, or an address and a prefix. No limit for
    /// one client applies to their connections; those of all do.
    ///
    /// Replaces earlier ones.
    pub fn trusting<I>(mut self, networks: I) -> Self
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        match Networks::parse(networks) {
            Ok(networks) => self.settings.trusted = networks,
            Err(error) => self.settings.is_wrong(error),
        }
        self
    }

    /// Sets which addresses are one client, by the prefixes of `PeerIp`. Default: an IPv4 address,
    /// and a /64 of IPv6.
    ///
    /// ```
    /// use tokio::net::TcpListener;
    /// use tollgate::{key::PeerIp, listen::Guarded};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let listener = Guarded::new(TcpListener::bind("127.0.0.1:0").await?)
    ///     .clients(PeerIp::new().ipv6_prefix(56))
    ///     .per_client(64)
    ///     .build()?;
    /// # drop(listener);
    /// # Ok(()) }
    /// ```
    pub fn clients(mut self, clients: PeerIp) -> Self {
        self.settings.clients = clients;
        self
    }

    /// Sets the time from the acceptance of a connection until the head of its first request is
    /// complete, with handshakes and the answers of stores. Default: 10 s.
    pub fn head_within(mut self, time: Duration) -> Self {
        self.settings.bounds.head_within = time;
        self
    }

    /// Sets how many bytes the head of the first request may have, 1 or more. Default: 16 KiB.
    ///
    /// The server keeps a head in memory until it is complete.
    pub fn head_at_most(mut self, bytes: usize) -> Self {
        self.settings.bounds.head_at_most = bytes;
        self
    }

    /// Sets the time after which a connection is closed on which no byte was sent or received,
    /// above zero. Default: 10 minutes; `Duration::MAX` for never.
    ///
    /// Choose it longer than the longest time for which a response keeps its client waiting: a
    /// request that is being handled, and a WebSocket without pings, are silent, too. A byte counts
    /// when the system takes it from the server, or gives it: one that takes a long response slowly
    /// is silent while the buffers of its socket empty by a third, which takes 130 s of 4 MB at
    /// 10 kB/s.
    pub fn idle_for(mut self, time: Duration) -> Self {
        self.settings.bounds.idle_for = time;
        self
    }

    /// Hears connections of TLS, in which the guard sees no heads, by a layer of their server.
    ///
    /// Only for [TLS around](Self#tls) the guarded listener, and if [`Listen::client`] is the
    /// address that requests carry. Without the layer around the server's
    /// service, all connections of TLS are closed after [`head_within`](Self::head_within).
    pub fn heard_by(mut self, heard: &Heard) -> Self {
        self.settings.bounds.heard = Some(heard.clone());
        self
    }

    /// Returns a handle to the counts of its connections.
    pub fn connections(&self) -> Connections {
        self.settings.bounds.connections.clone()
    }

    /// Builds the listener.
    ///
    /// # Errors
    ///
    /// When a setting is out of its range; when the process may not open as many file handles as
    /// [`at_most`](Self::at_most) needs; when a rule [may delay](Algorithm::may_delay): nothing
    /// delays a connection; and when the [PROXY protocol](Self::proxy_protocol) has no trusted
    /// networks.
    pub fn build(self) -> Result<GuardedListener<L, Io>, Error>
    where
        Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let settings = self.settings;
        let at_most = settings.check(open_files())?;
        let mut limits = Vec::new();
        if let Some(most) = settings.per_client {
            // Keys whose connections are closed stay for a while, and give way to others.
            let keys = at_most.saturating_mul(2).clamp(MIN_KEYS, MAX_KEYS);
            let store = LocalBuilder::new().capacity(keys).build::<InFlight>();
            let rule = InFlight::try_at_most(most)
                .map_err(|error| Error::new(format!(
                    "`per_client({most})`: expected 1 to 2^40 connections; to have no such limit, leave it out ({error})"
                )))?;
            let limiter = Limiter::new(Policy::new("connections"), rule, store);
            limits.push((Reason::PerClient, client_limit(&limiter, None)));
        }
        // After it, so that a connection too many costs nothing.
        let accept = settings.accept.into_iter();
        limits.extend(accept.map(|limit| (Reason::Accept, limit)));
        let gate = Gate {
            at_most,
            bounds: Arc::new(settings.bounds),
            trusted: settings.trusted,
            clients: settings.clients,
            limits,
            proxied: settings.proxied,
            handshake: self.handshake,
        };
        Ok(GuardedListener::new(self.listener, gate))
    }

    /// Builds the listener for `axum::serve`, with the address of the client as
    /// `ConnectInfo<SocketAddr>`: axum makes that of a type of its own, which this one is.
    ///
    /// For a `ConnectInfo` of your own, [`build`](Self::build) the listener, and implement axum's
    /// `Connected<IncomingStream<'_, GuardedListener<L>>>`, which finds the connection below by
    /// [`GuardedIo::get_ref`].
    ///
    /// # Errors
    ///
    /// Those of [`build`](Self::build).
    #[cfg(feature = "axum")]
    pub fn for_axum(self) -> Result<AxumListener<L, Io>, Error>
    where
        Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        use axum::serve::ListenerExt;

        let nothing: fn(&mut GuardedIo<Io>) = |_| {};
        Ok(self.build()?.tap_io(nothing))
    }
}

/// The connections of all, unless they are set.
const MOST: usize = 1 << 16;

/// The file handles of a small program: standard ones, the listener, those of the runtime.
const OWN_FILES: u64 = 16;

/// The fewest and the most keys of the limit for one client, whatever the limit of all.
const MIN_KEYS: usize = 1024;
const MAX_KEYS: usize = 1 << 22;

impl<A> Settings<A> {
    fn is_wrong(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    /// Returns how many connections may be open, if all settings are right.
    fn check(&self, open_files: Option<u64>) -> Result<usize, Error> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let zero = |what, or| {
            Err(Error::new(format!(
                "`{what}` is zero: no connection could be used; expected more, {or}"
            )))
        };
        if self.bounds.head_within.is_zero() {
            return zero("head_within", "such as 10 s");
        }
        if self.bounds.head_at_most == 0 {
            return zero("head_at_most", "such as 16384 bytes");
        }
        if self.bounds.idle_for.is_zero() {
            return zero("idle_for", "such as 120 s, or `Duration::MAX` for never");
        }
        if self.proxied.is_some() && self.trusted.is_empty() {
            return Err(Error::new(
                "`proxy_protocol` without trusted networks: anybody could name any address; expected the networks of \
                 the balancers by `trusting`, as in `trusting([\"10.0.0.0/8\"])`",
            ));
        }
        match (self.at_most, open_files) {
            (Some(0), _) => zero("at_most", "such as 20000"),
            (Some(most), Some(files)) if (most as u64).saturating_add(OWN_FILES) > files => {
                Err(Error::new(format!(
                    "`at_most({most})` needs {most} file handles and some {OWN_FILES} for the program, and this \
                     process may open {files}: expected a lower number; or raise the limit (`ulimit -n`, \
                     `LimitNOFILE` of systemd)"
                )))
            }
            (Some(most), _) => Ok(most),
            (None, files) => {
                let files = files.map_or(usize::MAX, |files| files as usize);
                Ok(MOST.min(files - files / 8))
            }
        }
    }
}

/// Returns the number of file handles that the process may open; `None` if there is no limit, or
/// none that the system tells.
fn open_files() -> Option<u64> {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(unix))]
    None
}

/// Makes a limit for one client of a limiter, whose later rules are checked meanwhile.
fn client_limit<Rule, S>(limiter: &Limiter<Rule, S>, watch: Option<Watch>) -> ClientLimit
where
    Rule: Algorithm,
    S: Store<Rule, Error = Infallible, Answer: Send + 'static> + Send + Sync + 'static,
{
    let limiter = limiter.clone();
    Box::new(move |key| {
        let _watch = &watch;
        match limiter.permit(key, Cost::ONE) {
            Check::Ready(permit) => Check::Ready(permit.ok()),
            Check::Pending(permit) => Check::Pending(Box::pin(async { permit.await.ok() })),
        }
    })
}

impl_debug!([L: Listen + fmt::Debug, Io] Guarded<L, Io>, |it| listener = it.listener);
