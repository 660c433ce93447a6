//! Guarded listeners below real servers: axum and tonic, over TCP, TLS and Unix sockets, and behind
//! a real balancer.

use std::{
    convert::Infallible,
    fs,
    future::IntoFuture,
    net::SocketAddr,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request, connect_info::Connected},
    http::{Response, StatusCode, header},
    routing::get,
    serve::IncomingStream,
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, ServerConfig, pki_types::PrivateKeyDer};
use support::servers::{Haproxy, in_time};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream},
    sync::{Notify, oneshot},
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tollgate::{
    RateLimitLayer, TokenBucket,
    key::PeerIp,
    listen::{Connections, Guarded, GuardedListener, Heard},
};
use tonic::{
    server::NamedService,
    transport::{
        Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig,
        server::{TcpConnectInfo, TlsConnectInfo},
    },
};
use tower::{Service, service_fn};

use greeter::{Greeter, GreeterServer};

#[path = "../../examples/tonic/greeter.rs"]
#[allow(dead_code, reason = "its client connects by itself")]
mod greeter;

const SOON: Duration = Duration::from_secs(20);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

async fn local() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// Responds with the address of the client.
fn whoami() -> Router {
    let whoami = async |ConnectInfo(address): ConnectInfo<SocketAddr>| address.to_string();
    Router::new().route("/", get(whoami))
}

/// Serves the app, and returns the address and the counts.
async fn serve<Io>(guarded: Guarded<TcpListener, Io>, app: Router) -> (SocketAddr, Connections)
where
    Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let connections = guarded.connections();
    let listener = guarded.for_axum().unwrap();
    let address = axum::serve::Listener::local_addr(&listener).unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, connections)
}

/// Sends bytes, and returns all that comes until the connection ends.
async fn exchange(mut io: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) -> String {
    let mut answer = Vec::new();
    // A connection that is reset ends, too; one that is never closed must fail a test.
    if io.write_all(bytes).await.is_ok() {
        let ends = timeout(6 * SOON, io.read_to_end(&mut answer)).await;
        assert!(ends.is_ok(), "it is never closed");
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Waits until so many connections are open.
async fn becomes(connections: &Connections, open: usize) {
    in_time(SOON, async {
        while connections.stats().open != open {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn axum_knows_the_client() {
    let guarded = Guarded::new(local().await).per_client(1);
    let layer = RateLimitLayer::new(TokenBucket::per_hour(2)).key(PeerIp::new());
    let (server, connections) = serve(guarded, whoami().layer(layer)).await;
    for status in ["200", "200", "429"] {
        becomes(&connections, 0).await;
        let client = TcpStream::connect(server).await.unwrap();
        let own = client.local_addr().unwrap().to_string();
        let answer = exchange(client, REQUEST).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
        assert_eq!(answer.ends_with(&own), status == "200", "{answer}");
    }
    // The second connection of one client is reset, and counted.
    let _first = TcpStream::connect(server).await.unwrap();
    becomes(&connections, 1).await;
    // It may notice that already while it connects.
    if let Ok(second) = TcpStream::connect(server).await {
        assert_eq!(exchange(second, REQUEST).await, "");
    }
    let stats = connections.stats();
    assert_eq!((stats.refused_per_client, stats.accepted), (1, 4));
}

/// What never becomes a request is closed by a real server, in time, and what does is not.
#[tokio::test]
async fn a_real_server_closes_what_is_no_request() {
    let limit = Duration::from_secs(3);
    let guarded = Guarded::new(local().await).head_within(limit);
    let slow = get(async || {
        sleep(Duration::from_secs(4)).await;
        "slow"
    });
    let (server, connections) = serve(guarded, whoami().route("/slow", slow)).await;
    let begun = Instant::now();
    let silent: [&[u8]; 4] = [
        b"",
        b"GET / HTTP/1.1\r\nhost: a\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x00\xc8\x01",
    ];
    let silent = silent.map(|bytes| async move {
        let client = TcpStream::connect(server).await.unwrap();
        exchange(client, bytes).await
    });
    // Its handler takes longer than a head may.
    let slow = async {
        let client = TcpStream::connect(server).await.unwrap();
        exchange(
            client,
            &String::from_utf8_lossy(REQUEST)
                .replace("/ ", "/slow ")
                .into_bytes(),
        )
        .await
    };
    let (_, slow) = in_time(SOON, async {
        tokio::join!(futures_util::future::join_all(silent), slow)
    })
    .await;
    assert!(begun.elapsed() >= limit && slow.ends_with("slow"), "{slow}");
    // An answer to the hello, or none, and no more.
    let stats = connections.stats();
    assert!(stats.closed_head_late >= 3, "{stats:?}");
    becomes(&connections, 0).await;
}

/// An upgraded connection counts until it is closed.
#[tokio::test]
async fn upgraded_connections_count_on() {
    let upgrades = get(async |request: Request| {
        let upgrade = hyper::upgrade::on(request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgrade.await.unwrap());
            let mut bytes = [0; 4];
            while io.read_exact(&mut bytes).await.is_ok() && io.write_all(&bytes).await.is_ok() {}
        });
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(header::CONNECTION, "upgrade")
            .header(header::UPGRADE, "echo")
            .body(Body::empty())
            .unwrap()
    });
    let guarded = Guarded::new(local().await).idle_for(Duration::from_secs(4));
    let (server, connections) = serve(guarded, Router::new().route("/", upgrades)).await;
    let mut client = TcpStream::connect(server).await.unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
        .await
        .unwrap();
    let mut answer = [0; 1024];
    let count = client.read(&mut answer).await.unwrap();
    assert!(answer[..count].starts_with(b"HTTP/1.1 101"));
    for _ in 0..5 {
        client.write_all(b"ping").await.unwrap();
        client.read_exact(&mut answer[..4]).await.unwrap();
        assert_eq!(connections.stats().open, 1);
        sleep(Duration::from_secs(1)).await;
    }
    // Silence ends it, too.
    let ended = in_time(SOON, client.read(&mut answer)).await;
    assert!(!matches!(ended, Ok(1..)));
    becomes(&connections, 0).await;
    assert_eq!(connections.stats().closed_idle, 1);
}

#[tokio::test]
async fn a_graceful_shutdown_waits_for_requests() {
    let guarded = Guarded::new(local().await).head_within(Duration::from_secs(1));
    let connections = guarded.connections();
    let listener = guarded.for_axum().unwrap();
    let server = axum::serve::Listener::local_addr(&listener).unwrap();
    let arrived = Arc::new(Notify::new());
    let arrives = Arc::clone(&arrived);
    let slow = get(async move || {
        arrives.notify_one();
        sleep(Duration::from_millis(500)).await;
        "slow"
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = axum::serve(listener, Router::new().route("/", slow))
        .with_graceful_shutdown(async { drop(stopped.await) });
    let serving = tokio::spawn(serving.into_future());
    let client = TcpStream::connect(server).await.unwrap();
    let answer = tokio::spawn(exchange(client, REQUEST));
    // One that says nothing does not hold up the end for ever.
    let _silent = TcpStream::connect(server).await.unwrap();
    becomes(&connections, 2).await;
    arrived.notified().await;
    stop.send(()).unwrap();
    assert!(answer.await.unwrap().ends_with("slow"));
    in_time(SOON, serving).await.unwrap().unwrap();
    assert_eq!(connections.stats().open, 0);
    assert!(TcpStream::connect(server).await.is_err());
}

/// What the server knows of the process at the other end.
#[derive(Clone)]
struct Peer(u32);

impl Connected<IncomingStream<'_, GuardedListener<UnixListener>>> for Peer {
    fn connect_info(stream: IncomingStream<'_, GuardedListener<UnixListener>>) -> Self {
        Self(stream.io().get_ref().peer_cred().unwrap().uid())
    }
}

#[tokio::test]
async fn unix_sockets_have_the_limits_of_all() {
    let folder = std::env::temp_dir().join(format!("tollgate-listen-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("socket");
    let guarded = Guarded::new(UnixListener::bind(&path).unwrap())
        .at_most(2)
        .per_client(1)
        .head_within(Duration::from_secs(1));
    let connections = guarded.connections();
    let whoami = async |ConnectInfo(Peer(user)): ConnectInfo<Peer>| user.to_string();
    let app = Router::new().route("/", get(whoami));
    let app = app.into_make_service_with_connect_info::<Peer>();
    let listener = guarded.build().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });

    let open = [
        UnixStream::connect(&path).await.unwrap(),
        UnixStream::connect(&path).await.unwrap(),
    ];
    becomes(&connections, 2).await;
    let third = UnixStream::connect(&path).await.unwrap();
    assert_eq!(exchange(third, b"").await, "");
    assert_eq!(connections.stats().refused_at_most, 1);
    becomes(&connections, 0).await;
    assert_eq!(connections.stats().closed_head_late, 2);
    drop(open);
    let answer = exchange(UnixStream::connect(&path).await.unwrap(), REQUEST).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    fs::remove_dir_all(&folder).unwrap();
}

/// A certificate of `localhost`, and both sides of TLS with it.
struct Tls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    certificate: String,
    key: String,
}

impl Tls {
    fn new() -> Self {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut roots = RootCertStore::empty();
        roots.add(own.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
            certificate: own.cert.pem(),
            key: own.signing_key.serialize_pem(),
        }
    }

    /// Returns an endpoint for clients of gRPC.
    fn endpoint(&self) -> Endpoint {
        let client = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&self.certificate))
            .domain_name("localhost");
        Endpoint::from_static("https://localhost")
            .tls_config(client)
            .unwrap()
    }

    async fn connect(&self, server: SocketAddr) -> tokio_rustls::client::TlsStream<TcpStream> {
        self.connect_for(server, b"http/1.1").await
    }

    /// Connects for a protocol.
    async fn connect_for(
        &self,
        server: SocketAddr,
        protocol: &[u8],
    ) -> tokio_rustls::client::TlsStream<TcpStream> {
        let stream = TcpStream::connect(server).await.unwrap();
        let name = "localhost".try_into().unwrap();
        let connector = self.connector.clone();
        let connector = connector.with_alpn(vec![protocol.to_vec()]);
        connector.connect(name, stream).await.unwrap()
    }
}

/// Handshakes that never end hold up nobody, and half a head inside of TLS is found.
#[tokio::test]
async fn tls_inside_of_the_guard() {
    let tls = Tls::new();
    let acceptor = tls.acceptor.clone();
    let guarded = Guarded::new(local().await)
        .head_within(Duration::from_secs(4))
        .handshake(move |stream| acceptor.accept(stream));
    let (server, connections) = serve(guarded, whoami()).await;
    let mut silent = Vec::new();
    for bytes in [&b""[..], b"\x16\x03\x01\x00\xc8\x01"] {
        let mut client = TcpStream::connect(server).await.unwrap();
        client.write_all(bytes).await.unwrap();
        silent.push(client);
    }
    let answer = in_time(SOON, async {
        exchange(tls.connect(server).await, REQUEST).await
    });
    assert!(answer.await.contains("127.0.0.1:"));
    let half = tls.connect(server).await;
    let closed = in_time(SOON, exchange(half, b"GET / HTTP/1.1\r\n"));
    assert_eq!(closed.await, "");
    let clear = TcpStream::connect(server).await.unwrap();
    // An alert of TLS, and no response.
    assert!(!exchange(clear, REQUEST).await.contains("HTTP"));
    becomes(&connections, 0).await;
    let stats = connections.stats();
    assert_eq!((stats.closed_head_late, stats.closed_handshake), (3, 1));
    assert_eq!(stats.accepted, 2);
}

/// Calls a method over a connection that begins with these bytes, at once and after a while.
async fn greets(endpoint: Endpoint, server: SocketAddr, first: &'static [u8]) {
    let connector = service_fn(move |_| async move {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(first).await?;
        Ok::<_, std::io::Error>(TokioIo::new(stream))
    });
    let channel = in_time(SOON, endpoint.connect_with_connector(connector)).await;
    let mut client = tonic::client::Grpc::new(channel.unwrap());
    for pause in [0, 4] {
        sleep(Duration::from_secs(pause)).await;
        client.ready().await.unwrap();
        let name = "ann".to_owned();
        let request = tonic::Request::new(greeter::HelloRequest { name });
        let codec = tonic_prost::ProstCodec::<_, greeter::HelloReply>::default();
        let path = http::uri::PathAndQuery::from_static("/greeter.Greeter/SayHello");
        let answer = client.unary(request, path, codec).await.unwrap();
        assert_eq!(answer.into_inner().message, "hello, ann");
    }
}

/// Notes the client's address by which tonic knows it, and greets.
#[derive(Clone, Default)]
struct Spy(Arc<Mutex<Vec<SocketAddr>>>);

impl NamedService for Spy {
    const NAME: &'static str = GreeterServer::NAME;
}

impl Service<http::Request<tonic::body::Body>> for Spy {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = <GreeterServer as Service<http::Request<tonic::body::Body>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let extensions = request.extensions();
        let tcp = extensions.get::<TcpConnectInfo>();
        let tls = extensions.get::<TlsConnectInfo<TcpConnectInfo>>();
        let info = tcp.or_else(|| tls.map(TlsConnectInfo::get_ref));
        self.0.lock().unwrap().extend(info.unwrap().remote_addr);
        GreeterServer(Greeter).call(request)
    }
}

/// Streams of tonic, plain, with TLS inside of the guard, and with TLS around it: calls are
/// answered long after the time of the first head, and a hello without an end is closed.
#[tokio::test]
async fn tonic_over_tcp_and_tls() {
    let tls = Tls::new();
    let (spy, head) = (Spy::default(), Duration::from_secs(3));
    let guarded = async || {
        let guarded = Guarded::new(local().await).head_within(head);
        (guarded.connections(), guarded)
    };
    let (counts, plain) = guarded().await;
    let plain = plain.build().unwrap();
    let (counts_inside, inside) = guarded().await;
    let acceptor = tls.acceptor.clone();
    let inside = inside.handshake(move |stream| acceptor.accept(stream));
    let inside = inside.build().unwrap();
    let (counts_around, around) = guarded().await;
    let around = around.build().unwrap();
    let [on_plain, on_inside, on_around] =
        [plain.local_addr(), inside.local_addr(), around.local_addr()].map(Result::unwrap);
    let identity = ServerTlsConfig::new().identity(Identity::from_pem(&tls.certificate, &tls.key));
    let server = || Server::builder().add_service(spy.clone());
    tokio::spawn(server().serve_with_incoming(plain));
    tokio::spawn(server().serve_with_incoming(inside));
    let with_tls = Server::builder().tls_config(identity).unwrap();
    tokio::spawn(
        with_tls
            .clone()
            .add_service(spy.clone())
            .serve_with_incoming(around),
    );

    tokio::join!(
        greets(Endpoint::from_static("http://localhost"), on_plain, b""),
        greets(tls.endpoint(), on_inside, b""),
        greets(tls.endpoint(), on_around, b""),
    );
    assert_eq!(spy.0.lock().unwrap().len(), 6);
    assert!(
        spy.0
            .lock()
            .unwrap()
            .iter()
            .all(|address| address.ip().is_loopback())
    );
    let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let hello: &[u8] = b"\x16\x03\x01\x00\xc8\x01";
    for (server, counts, bytes) in [
        (on_plain, counts, preface),
        (on_inside, counts_inside, hello),
        (on_around, counts_around, hello),
    ] {
        let late = counts.stats().closed_head_late;
        let silent = TcpStream::connect(server).await.unwrap();
        in_time(SOON, exchange(silent, bytes)).await;
        assert_eq!(counts.stats().closed_head_late, late + 1);
    }
}

/// With TLS around the guard, only a request is a sign that a client is heard: not the end of a
/// handshake, nor what an attacker may send before it.
#[tokio::test]
async fn tls_around_the_guard_is_heard_by_the_server() {
    let tls = Tls::new();
    let heard = Heard::new();
    let guarded = Guarded::new(local().await);
    let guarded = guarded.head_within(Duration::from_secs(3)).heard_by(&heard);
    let incoming = guarded.build().unwrap();
    let connections = incoming.connections().clone();
    let server = incoming.local_addr().unwrap();
    let identity = ServerTlsConfig::new().identity(Identity::from_pem(&tls.certificate, &tls.key));
    let serving = Server::builder()
        .tls_config(identity)
        .unwrap()
        .layer(heard.clone())
        .add_service(Spy::default())
        .serve_with_incoming(incoming);
    tokio::spawn(serving);
    let calls = greets(tls.endpoint(), server, b"");

    let after_handshake = async {
        let mut silent = tls.connect_for(server, b"h2").await;
        let _ = silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        let _ = silent.read_to_end(&mut Vec::new()).await;
    };
    // A record of application data without a handshake.
    let record = async {
        let client = TcpStream::connect(server).await.unwrap();
        exchange(client, b"\x16\x03\x01\x00\x01\x01\x17\x03\x03\x00\x01\x00").await;
    };
    in_time(SOON, async { tokio::join!(calls, after_handshake, record) }).await;
    becomes(&connections, 0).await;
    let stats = connections.stats();
    // The server may close the one without a handshake itself.
    let unheard = stats.closed_head_late + stats.ended_early;
    assert_eq!((unheard, stats.accepted), (2, 3), "{stats:?}");
    assert!(stats.closed_head_late > 0);
    assert_eq!(format!("{heard:?}"), "Heard { expected: 0 }");
}

/// A client that sends a byte of its next request while the first is handled is silent all the
/// same, and one that went away is noticed.
#[tokio::test]
async fn a_byte_of_the_next_request_hides_no_silence() {
    let guarded = Guarded::new(local().await).idle_for(Duration::from_secs(1));
    let waits = get(std::future::pending::<&str>);
    let (server, connections) = serve(guarded, Router::new().route("/", waits)).await;
    for request in [
        "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\n\r\nG",
    ] {
        let client = TcpStream::connect(server).await.unwrap();
        let answer = in_time(SOON, exchange(client, request.as_bytes())).await;
        assert_eq!(answer, "");
    }
    becomes(&connections, 0).await;
    assert_eq!(connections.stats().closed_idle, 2);
}

/// Behind a real HAProxy, which sends its header in both versions, clients have their own addresses
/// and limits.
#[tokio::test]
async fn clients_behind_a_balancer() {
    let guarded = Guarded::new(local().await).trusting(["127.0.0.1"]);
    let guarded = guarded.proxy_protocol().per_client(1);
    let (server, connections) = serve(guarded, whoami()).await;
    let folder = std::env::temp_dir().join(format!("tollgate-balancer-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for send in ["send-proxy", "send-proxy-v2"] {
        let file = folder.join(send);
        let configuration = format!(
            "defaults\n    mode tcp\n    retries 0\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n\
             frontend public\n    bind \"${{LISTEN}}\"\n    default_backend servers\n\
             backend servers\n    server one \"${{NODE}}\" {send} check check-send-proxy\n"
        );
        fs::write(&file, configuration).unwrap();
        let start = move || Haproxy::start(&file, &[("NODE", server.to_string())]);
        let balancer = tokio::task::spawn_blocking(start).await.unwrap();
        let refused = connections.stats().refused_per_client;
        // Its clients have other addresses than itself.
        for (number, client) in (1..).zip(["127.0.3.1", "127.0.3.2"]) {
            let mut open = connect_from(client, balancer.address()).await;
            let own = open.local_addr().unwrap();
            open.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
                .await
                .unwrap();
            let mut answer = [0; 4096];
            let count = in_time(SOON, open.read(&mut answer)).await.unwrap();
            let answer = String::from_utf8_lossy(&answer[..count]);
            assert!(answer.ends_with(&own.to_string()), "{send}: {answer}");
            // Each has a limit of its own.
            let second = connect_from(client, balancer.address()).await;
            assert_eq!(exchange(second, REQUEST).await, "");
            assert_eq!(connections.stats().refused_per_client, refused + number);
        }
    }
    fs::remove_dir_all(&folder).unwrap();
    // A stranger's header is a wrong request.
    let stranger = connect_from("127.0.0.9", server).await;
    let answer = exchange(stranger, &[HEADER, REQUEST].concat()).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

const HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n";

/// What tonic tells of the client is what the balancer said, plain and inside of TLS.
#[tokio::test]
async fn tonic_knows_the_client_behind_a_balancer() {
    let tls = Tls::new();
    let guarded = async || {
        let guarded = Guarded::new(local().await).trusting(["127.0.0.0/8"]);
        guarded.proxy_protocol()
    };
    let spy = Spy::default();
    let plain = guarded().await.build().unwrap();
    let server = plain.local_addr().unwrap();
    tokio::spawn(
        Server::builder()
            .add_service(spy.clone())
            .serve_with_incoming(plain),
    );
    greets(Endpoint::from_static("http://localhost"), server, HEADER).await;

    let acceptor = tls.acceptor.clone();
    let inside = guarded()
        .await
        .handshake(move |stream| acceptor.accept(stream));
    let inside = inside.build().unwrap();
    let server = inside.local_addr().unwrap();
    tokio::spawn(
        Server::builder()
            .add_service(spy.clone())
            .serve_with_incoming(inside),
    );
    greets(tls.endpoint(), server, HEADER).await;

    let expected = SocketAddr::from(([192, 0, 2, 7], 4711));
    assert_eq!(*spy.0.lock().unwrap(), [expected; 4]);
}

async fn connect_from(address: &str, server: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket
        .bind(SocketAddr::new(address.parse().unwrap(), 0))
        .unwrap();
    socket.connect(server).await.unwrap()
}
