//! Servers of HTTP in processes of their own, with a meter of their connections.

use std::{
    collections::HashMap,
    env, fs,
    future::IntoFuture,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body, routing::get};
use bytes::Bytes;
use futures_util::stream;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpSocket, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use tollgate::{
    TokenBucket,
    listen::{ConnectionStats, Connections, Guarded, GuardedIo, GuardedListener, Listen},
};

use super::{Process, answers, runtime};

const VARIABLE: &str = "TOLLGATE_LISTEN_SERVER";

pub(super) const PER_CLIENT: usize = 16;
pub(super) const HEAD_WITHIN: Duration = Duration::from_secs(8);
pub(super) const IDLE_FOR: Duration = Duration::from_secs(9);
const SMALL: usize = 200;

/// Does nothing, except in a process that `Server::start` starts.
#[test]
fn process() {
    if let Ok(kind) = env::var(VARIABLE) {
        runtime().block_on(serve(&kind));
    }
}

async fn serve(kind: &str) {
    let bind = || {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        // The default of `TcpListener::bind` is 128.
        socket.listen(4096).unwrap()
    };
    let [http, tls] = [bind(), bind()];
    let addresses = [&http, &tls].map(|listener| listener.local_addr().unwrap());
    let chunk = Bytes::from(vec![b'a'; 64 * 1024]);
    let endless = stream::repeat_with(move || Ok::<_, io::Error>(chunk.clone()));
    let app = Router::new()
        .route("/", get(async || "hello"))
        .route("/endless", get(async || Body::from_stream(endless)));
    let meter = Meter::default();
    let mut connections = Vec::new();
    match kind {
        "plain" => {
            for listener in [http, tls] {
                tokio::spawn(axum::serve(listener, app.clone()).into_future());
            }
        }
        kind => {
            let guarded = settings(kind, Guarded::new(Clients(http)));
            connections.push(guarded.connections());
            let guarded = meter.around(guarded.build().unwrap());
            tokio::spawn(axum::serve(guarded, app.clone()).into_future());

            let acceptor = acceptor();
            let guarded = Guarded::new(Clients(tls));
            let guarded = guarded.handshake(move |stream| acceptor.accept(stream));
            let guarded = settings(kind, guarded);
            connections.push(guarded.connections());
            let guarded = meter.around(guarded.build().unwrap());
            tokio::spawn(axum::serve(guarded, app).into_future());
        }
    }
    answers(move |_| meter.text(&connections));
    println!("\nlistens {} {}", addresses[0], addresses[1]);
    std::future::pending().await
}

fn settings<Io>(kind: &str, guarded: Guarded<Clients, Io>) -> Guarded<Clients, Io> {
    let guarded = guarded
        .per_client(PER_CLIENT as u64)
        .accept(TokenBucket::per_second(20).burst(60))
        .trusting(["127.9.0.0/16"])
        .proxy_protocol()
        .head_within(HEAD_WITHIN)
        .idle_for(IDLE_FOR);
    match kind {
        "small" => guarded.at_most(SMALL),
        _ => guarded,
    }
}

fn acceptor() -> TlsAcceptor {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.into()], key.into())
        .unwrap();
    Arc::new(config).into()
}

/// The address that stands for a client: those of 127.6/16 are machines of one /64.
fn client(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) if v4.octets()[..2] == [127, 6] => {
            let [.., a, b] = v4.octets();
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, a.into(), 0, 0, b.into()).into()
        }
        other => other,
    }
}

/// Listens for clients.
struct Clients(TcpListener);

impl Listen for Clients {
    type Io = TcpStream;
    type Addr = SocketAddr;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.0.poll_accept(cx).map_ok(|(stream, address)| {
            // As much as over a network: on the loopback, it may grow to megabytes.
            rustix::net::sockopt::set_socket_send_buffer_size(&stream, 64 * 1024).unwrap();
            (stream, address)
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn client(address: &SocketAddr) -> Option<SocketAddr> {
        Some(SocketAddr::new(client(address.ip()), address.port()))
    }

    fn refuse(io: TcpStream) {
        <TcpListener as Listen>::refuse(io);
    }
}

/// Counts the connections that the server has, by client: an address, or a /64.
#[derive(Clone, Default)]
struct Meter(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    /// By listener and client.
    open: HashMap<(u16, IpAddr), usize>,
    /// By listener.
    all: HashMap<u16, usize>,
    most: usize,
    most_of_one: usize,
}

impl Meter {
    fn around<Io>(&self, listener: GuardedListener<Clients, Io>) -> Metered<Io>
    where
        Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Metered {
            meter: self.clone(),
            port: listener.local_addr().unwrap().port(),
            listener,
        }
    }

    fn enter(&self, port: u16, address: SocketAddr) -> Inside {
        let client = match client(address.ip()) {
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
            v4 => v4,
        };
        let mut counts = self.0.lock().unwrap();
        let of_one = counts.open.entry((port, client)).or_default();
        *of_one += 1;
        let of_one = *of_one;
        let all = counts.all.entry(port).or_default();
        *all += 1;
        let all = *all;
        counts.most = counts.most.max(all);
        counts.most_of_one = counts.most_of_one.max(of_one);
        Inside {
            meter: self.clone(),
            port,
            client,
        }
    }

    /// Returns the text that [`Seen`] reads.
    fn text(&self, connections: &[Connections]) -> String {
        let all: Vec<_> = connections.iter().map(Connections::stats).collect();
        let sum = |of: fn(&ConnectionStats) -> u64| all.iter().map(of).sum::<u64>();
        // The listeners have the same limits, and count one by one.
        let most_of_all = all.iter().map(|stats| stats.open).max().unwrap_or(0);
        let counts = self.0.lock().unwrap();
        format!(
            "seen {} {} {} {} {} {} {} {} {}",
            sum(|stats| stats.open as u64),
            counts.most.max(most_of_all),
            counts.most_of_one,
            sum(|stats| stats.refused_per_client),
            sum(|stats| stats.refused_at_most),
            sum(|stats| stats.closed_head_late),
            sum(|stats| stats.closed_head_long),
            sum(|stats| stats.closed_idle),
            sum(|stats| stats.accept_errors),
        )
    }
}

struct Inside {
    meter: Meter,
    port: u16,
    client: IpAddr,
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut counts = self.meter.0.lock().unwrap();
        *counts.all.get_mut(&self.port).unwrap() -= 1;
        let place = (self.port, self.client);
        let of_one = counts.open.get_mut(&place).unwrap();
        *of_one -= 1;
        if *of_one == 0 {
            counts.open.remove(&place);
        }
    }
}

/// A guarded listener whose connections are counted while the guard holds them.
struct Metered<Io> {
    listener: GuardedListener<Clients, Io>,
    port: u16,
    meter: Meter,
}

impl<Io> axum::serve::Listener for Metered<Io>
where
    Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    type Io = Counted<GuardedIo<Io>>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        let (io, address) = self.listener.accept().await;
        let _inside = self.meter.enter(self.port, address);
        (Counted { _inside, io }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Is dropped from the top: it counts for no longer than the guard's connection.
struct Counted<Io> {
    _inside: Inside,
    io: Io,
}

impl<Io: AsyncRead + Unpin> AsyncRead for Counted<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Counted<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// A server in a process of its own.
pub(super) struct Server {
    process: Process,
    pub(super) http: SocketAddr,
    /// Of a plain server, a second port without TLS.
    pub(super) tls: SocketAddr,
    at_most: usize,
}

/// The counts of a server.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) at_most: usize,
    /// Connections that are open, by the guards.
    pub(super) open: usize,
    /// The most at once: those of a listener, and those of one of its clients.
    pub(super) most: usize,
    pub(super) most_of_one: usize,
    pub(super) refused_per_client: usize,
    pub(super) refused_at_most: usize,
    pub(super) closed_head_late: usize,
    pub(super) closed_head_long: usize,
    pub(super) closed_idle: usize,
    pub(super) accept_errors: usize,
}

impl Server {
    /// Starts a server that is `plain`, `guarded`, or has a `small` limit of all. It may open so
    /// many files.
    pub(super) fn start(kind: &str, files: u64) -> Self {
        let mut process = Process::start("attack::server::process", VARIABLE, kind, files);
        let listens = process.answer("listens");
        let (http, tls) = listens.split_once(' ').unwrap();
        Self {
            process,
            http: http.parse().unwrap(),
            tls: tls.parse().unwrap(),
            at_most: match kind {
                "small" => SMALL,
                // The default.
                _ => files as usize / 8 * 7,
            },
        }
    }

    pub(super) fn seen(&mut self) -> Seen {
        let text = self.process.ask("?", "seen");
        let counts: Vec<usize> = text
            .split(' ')
            .map(|count| count.parse().unwrap())
            .collect();
        let [
            open,
            most,
            most_of_one,
            refused_per_client,
            refused_at_most,
            closed_head_late,
            closed_head_long,
            closed_idle,
            accept_errors,
        ] = counts[..]
        else {
            panic!("{text}")
        };
        Seen {
            at_most: self.at_most,
            open,
            most,
            most_of_one,
            refused_per_client,
            refused_at_most,
            closed_head_late,
            closed_head_long,
            closed_idle,
            accept_errors,
        }
    }

    /// The bytes of its memory that are in the memory of the machine.
    pub(super) fn memory(&self) -> usize {
        memory_of(&self.id())
    }

    pub(super) fn id(&self) -> String {
        self.process.id()
    }

    /// The number of files that it has opened.
    pub(super) fn files(&self) -> u64 {
        let folder = format!("/proc/{}/fd", self.id());
        fs::read_dir(folder).unwrap().count() as u64
    }
}

/// The bytes of a process, by its number or `self`, that are in the memory of the machine.
pub(super) fn memory_of(process: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.unwrap().split_ascii_whitespace().nth(1).unwrap();
    kilobytes.parse::<usize>().unwrap() * 1024
}
