//! Calls in flight over real connections of HTTP/1.1, HTTP/2 and gRPC: clients that read, hang up,
//! reset their streams, and upgrade.

#[path = "../../examples/tonic/greeter.rs"]
#[allow(dead_code, reason = "these tests call by themselves")]
mod greeter;

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, routing::get, serve::ListenerExt};
use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use support::Random;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tollgate::{
    By, InFlight, Limit, Permit, RateLimitLayer,
    key::Header,
    respond::{Grpc, Http},
    store::Local,
};
use tonic::{
    Code, client,
    transport::{Endpoint, Server, server::TcpIncoming},
};
use tonic_prost::ProstCodec;

pub(super) use greeter::{Greeter, GreeterServer, HelloReply, HelloRequest};

use super::{held, key};

pub(super) const SOON: Duration = Duration::from_secs(20);
pub(super) const LIMIT: u64 = 3;
pub(super) const KEYS: u64 = 4;

/// Counts the calls in a handler or its body, and the most at once.
#[derive(Clone, Default)]
pub(super) struct Meter(Arc<[AtomicU64; 2]>);

pub(super) struct Inside(Meter);

impl Meter {
    pub(super) fn enter(&self) -> Inside {
        let now = self.0[0].fetch_add(1, Ordering::SeqCst) + 1;
        self.0[1].fetch_max(now, Ordering::SeqCst);
        Inside(self.clone())
    }

    pub(super) fn now(&self) -> u64 {
        self.0[0].load(Ordering::SeqCst)
    }

    pub(super) fn most(&self) -> u64 {
        self.0[1].load(Ordering::SeqCst)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0[0].fetch_sub(1, Ordering::SeqCst);
    }
}

pub(super) type Layer = RateLimitLayer<Limit<InFlight, By<Header>>, Local<InFlight>, Http>;

pub(super) fn layer(store: &Local<InFlight>, rule: InFlight) -> Layer {
    RateLimitLayer::new(rule)
        .store(store.clone())
        .key(Header::new("x-api-key"))
}

/// Waits until nothing is held, and no call waits.
#[allow(clippy::disallowed_methods, reason = "connections live in real time")]
pub(super) async fn nothing_is_held(store: &Local<InFlight>) {
    let all = || {
        (0..KEYS)
            .map(|number| held(store, key(&number.to_string())))
            .sum::<u64>()
    };
    for _ in 0..4_000 {
        if all() == 0 && store.stats().waiting == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{} units are still held, or calls wait", all());
}

/// Returns the number of the key of a request.
pub(super) fn key_of<B>(request: &Request<B>) -> usize {
    let key = request.headers()["x-api-key"].to_str().unwrap();
    key.parse().unwrap()
}

/// An app whose handlers take some turns, and respond with a body that takes some more.
pub(super) fn app(layer: Layer, meters: &[Meter]) -> Router {
    let meters = meters.to_vec();
    let enter = move |request: &Request<Body>| meters[key_of(request)].enter();
    let entered = enter.clone();
    let stream = async move |request: Request<Body>| {
        let inside = entered(&request);
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        let body = stream::unfold((inside, 0), async |(inside, sent)| {
            tokio::task::yield_now().await;
            let chunk = Ok::<_, Infallible>(Bytes::from_static(b"xxxxxxxx"));
            (sent < 3).then_some((chunk, (inside, sent + 1)))
        });
        Response::new(Body::from_stream(body))
    };
    let entered = enter.clone();
    let panics = async move |request: Request<Body>| -> &'static str {
        let _inside = entered(&request);
        // Without a message.
        resume_unwind(Box::new("as it was told"))
    };
    let entered = enter.clone();
    let upgrades = async move |mut request: Request<Body>| {
        let inside = entered(&request);
        let permit = Permit::take(request.extensions_mut());
        let upgrade = hyper::upgrade::on(request);
        tokio::spawn(async move {
            // A client may go away before.
            if let Ok(io) = upgrade.await {
                let mut rest = Vec::new();
                drop(TokioIo::new(io).read_to_end(&mut rest).await);
            }
            drop(inside);
            drop(permit);
        });
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(header::CONNECTION, "upgrade")
            .header(header::UPGRADE, "bytes")
            .body(Body::empty())
            .unwrap()
    };
    let entered = enter.clone();
    let pending = async move |request: Request<Body>| {
        let _inside = entered(&request);
        std::future::pending::<&'static str>().await
    };
    let endless = async move |request: Request<Body>| {
        let inside = enter(&request);
        let chunks = stream::repeat_with(move || {
            let _ = &inside;
            Ok::<_, Infallible>(Bytes::from(vec![b'x'; 1 << 16]))
        });
        Body::from_stream(chunks)
    };
    Router::new()
        .route("/stream", get(stream))
        .route("/panics", get(panics))
        .route("/upgrades", get(upgrades))
        .route("/pending", get(pending))
        .route("/endless", get(endless))
        .layer(layer)
}

pub(super) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
    tokio::spawn(axum::serve(listener, app).into_future());
    address
}

pub(super) fn request(path: &str, key: u64) -> Request<Empty<Bytes>> {
    Request::get(format!("http://localhost{path}"))
        .header("host", "localhost")
        .header("x-api-key", key.to_string())
        .body(Empty::new())
        .unwrap()
}

/// Reads a response in full, in part, or not at all. Returns `true` if it was admitted.
async fn read(response: Response<hyper::body::Incoming>, random: &mut Random) -> bool {
    let admitted = response.status() == StatusCode::OK;
    let mut body = response.into_body();
    let frames = match random.below(3) {
        0 => 0,
        1 => 1 + random.below(3),
        _ => u64::MAX,
    };
    for _ in 0..frames {
        let Some(frame) = timeout(SOON, body.frame()).await.unwrap() else {
            break;
        };
        drop(frame);
    }
    admitted
}

/// Plays calls of a client that draws its keys, and how far it reads.
macro_rules! play {
    ($server:expr, $calls:expr, $seed:expr, $sender:expr) => {{
        let mut random = Random::new($seed);
        let (mut admitted, mut refused) = (0_u64, 0_u64);
        for _ in 0..$calls {
            let mut sender = timeout(SOON, $sender($server)).await.unwrap();
            for _ in 0..8 {
                let key = random.below(KEYS);
                if timeout(SOON, sender.ready()).await.unwrap().is_err() {
                    break;
                }
                let answer = sender.send_request(request("/stream", key));
                if random.once_in(4) {
                    // Cancelled before the response.
                    drop(timeout(Duration::ZERO, answer).await);
                    continue;
                }
                let Ok(response) = timeout(SOON, answer).await.unwrap() else {
                    break;
                };
                match read(response, &mut random).await {
                    true => admitted += 1,
                    false => refused += 1,
                }
            }
        }
        (admitted, refused)
    }};
}

/// Connects without delays of small packets, which would take most of the time of these tests.
async fn connect(server: SocketAddr) -> TokioIo<TcpStream> {
    let stream = TcpStream::connect(server).await.unwrap();
    stream.set_nodelay(true).unwrap();
    TokioIo::new(stream)
}

pub(super) async fn over_http1(server: SocketAddr) -> http1::SendRequest<Empty<Bytes>> {
    let io = connect(server).await;
    let (sender, connection) = http1::handshake(io).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    sender
}

pub(super) async fn over_http2(server: SocketAddr) -> http2::SendRequest<Empty<Bytes>> {
    let io = connect(server).await;
    // So that little is sent of a body that nobody reads.
    let mut client = http2::Builder::new(TokioExecutor::new());
    client.initial_stream_window_size(1 << 14);
    let (sender, connection) = client.handshake(io).await.unwrap();
    tokio::spawn(connection);
    sender
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_give_back_what_they_hold() {
    let [admitted, refused] = connections(InFlight::at_most(LIMIT)).await;
    assert!(admitted > 50 && refused > 0, "{admitted}, {refused}");
}

/// Clients hang up while their calls wait, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_wait_for_their_turn() {
    let waits = InFlight::at_most(LIMIT).wait_at_most(SOON / 2);
    let [admitted, refused] = connections(waits).await;
    assert!(admitted > 50 && refused < admitted, "{admitted}, {refused}");
}

/// Returns how many calls of many connections were admitted, and refused.
async fn connections(rule: InFlight) -> [u64; 2] {
    let store = Local::new();
    let meters: Vec<Meter> = (0..KEYS).map(|_| Meter::default()).collect();
    let server = serve(app(layer(&store, rule), &meters)).await;
    let calls = support::cases(400);
    let clients = (0..16).map(|seed| {
        tokio::spawn(async move {
            match seed % 2 {
                0 => play!(server, calls / 8 + 1, seed, over_http1),
                _ => play!(server, calls / 8 + 1, seed, over_http2),
            }
        })
    });
    let (mut admitted, mut refused) = (0, 0);
    for client in clients.collect::<Vec<_>>() {
        let (some, others) = client.await.unwrap();
        admitted += some;
        refused += others;
    }
    nothing_is_held(&store).await;
    let most: Vec<u64> = meters.iter().map(Meter::most).collect();
    assert!(most.iter().all(|most| *most <= LIMIT), "{most:?}");
    assert!(most.contains(&LIMIT), "{most:?}");
    [admitted, refused]
}

/// A client that goes away ends what it began, whatever the handler does.
#[tokio::test]
async fn clients_that_go_away_hold_nothing() {
    let store = Local::new();
    let server = serve(app(
        layer(&store, InFlight::at_most(LIMIT)),
        &[Meter::default()],
    ))
    .await;
    for path in ["/pending", "/endless", "/upgrades"] {
        let mut open = Vec::new();
        for n in 0..LIMIT {
            let mut stream = TcpStream::connect(server).await.unwrap();
            let upgrade = "connection: upgrade\r\nupgrade: bytes\r\n";
            let head =
                format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: 0\r\n{upgrade}\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            open.push(stream);
            is_held(&store, n + 1).await;
        }
        // The client reads nothing, and the next one is refused.
        let mut refused = over_http1(server).await;
        let response = refused.send_request(request(path, 0)).await.unwrap();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "{path}");
        drop(open);
        nothing_is_held(&store).await;
    }
}

#[allow(clippy::disallowed_methods, reason = "connections live in real time")]
async fn is_held(store: &Local<InFlight>, units: u64) {
    for _ in 0..4_000 {
        if held(store, key("0")) == units {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!(
        "{} instead of {units} units are held",
        held(store, key("0"))
    );
}

#[tokio::test]
async fn handlers_that_panic_hold_nothing() {
    let store = Local::new();
    let server = serve(app(
        layer(&store, InFlight::at_most(LIMIT)),
        &[Meter::default()],
    ))
    .await;
    for _ in 0..10 {
        let mut sender = over_http1(server).await;
        let answer = timeout(SOON, sender.send_request(request("/panics", 0)))
            .await
            .unwrap();
        assert!(answer.is_err());
        nothing_is_held(&store).await;
    }
}

/// A stream of HTTP/2 that is reset gives back at once, and the connection goes on.
#[tokio::test]
async fn streams_that_are_reset_hold_nothing() {
    let store = Local::new();
    let server = serve(app(
        layer(&store, InFlight::at_most(LIMIT)),
        &[Meter::default()],
    ))
    .await;
    let mut sender = over_http2(server).await;
    for round in 0..30 {
        let path = if round % 2 == 0 {
            "/pending"
        } else {
            "/endless"
        };
        let open: Vec<_> = (0..LIMIT)
            .map(|_| {
                let answer = sender.send_request(request(path, 0));
                tokio::spawn(async move {
                    let _response = answer.await;
                    std::future::pending::<()>().await
                })
            })
            .collect();
        is_held(&store, LIMIT).await;
        let refused = sender.send_request(request(path, 0)).await.unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        for task in open {
            task.abort();
        }
        nothing_is_held(&store).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_calls_give_back_what_they_hold() {
    let incoming = TcpIncoming::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = incoming.local_addr().unwrap();
    let store = Local::new();
    let server = Server::builder()
        .layer(layer(&store, InFlight::at_most(LIMIT)).respond(Grpc::new()))
        .add_service(GreeterServer(Greeter));
    tokio::spawn(server.serve_with_incoming(incoming));
    let calls = support::cases(400);
    let clients = (0..16_u64).map(|seed| {
        tokio::spawn(async move {
            let endpoint = Endpoint::new(format!("http://{address}")).unwrap();
            let channel = timeout(SOON, endpoint.connect()).await.unwrap().unwrap();
            let mut client = client::Grpc::new(channel);
            let mut random = Random::new(seed);
            let (mut admitted, mut refused) = (0_u64, 0_u64);
            for _ in 0..calls {
                timeout(SOON, client.ready()).await.unwrap().unwrap();
                let mut call = tonic::Request::new(HelloRequest {
                    name: "world".into(),
                });
                call.metadata_mut()
                    .insert("x-api-key", random.below(2).into());
                let codec = ProstCodec::<HelloRequest, HelloReply>::default();
                let path = http::uri::PathAndQuery::from_static("/greeter.Greeter/SayHello");
                let answer = client.unary(call, path, codec);
                if random.once_in(4) {
                    drop(timeout(Duration::ZERO, answer).await);
                    continue;
                }
                match timeout(SOON, answer).await.unwrap() {
                    Ok(_) => admitted += 1,
                    Err(status) => {
                        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                        refused += 1;
                    }
                }
            }
            (admitted, refused)
        })
    });
    let mut all = 0;
    for client in clients.collect::<Vec<_>>() {
        let (admitted, refused) = client.await.unwrap();
        assert!(admitted > 0);
        all += admitted + refused;
    }
    assert!(all > 8 * calls);
    nothing_is_held(&store).await;
}
