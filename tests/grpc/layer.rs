//! The layer in tonic, over real connections: the responses that a gRPC client receives.

#[path = "../../examples/tonic/greeter.rs"]
#[allow(
    dead_code,
    reason = "these tests call by themselves, to see the metadata"
)]
mod greeter;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::atomic::Ordering,
    time::Duration,
};

use crate::common::custom::Remote;
use axum::{Router, routing::get};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tollgate::{
    Cost, RateLimitLayer, TokenBucket,
    key::{BearerToken, Header, PeerIp},
    respond::Grpc,
    store::{Local, LocalBuilder, StoreExt},
    time::ManualClock,
};
use tonic::{
    Code, Response, Status, client,
    metadata::MetadataMap,
    service::Routes,
    transport::{Channel, Endpoint, Server, server::TcpIncoming},
};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt;

use greeter::{Greeter, GreeterServer, HelloReply, HelloRequest};

const SOON: Duration = Duration::from_secs(20);
const METHOD: &str = "/greeter.Greeter/SayHello";

fn incoming() -> (TcpIncoming, SocketAddr) {
    let incoming = TcpIncoming::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = incoming.local_addr().unwrap();
    (incoming, address)
}

/// Serves the greeter behind a layer, until the test's runtime ends.
macro_rules! serve {
    ($layer:expr) => {{
        let (incoming, address) = incoming();
        let server = Server::builder()
            .layer($layer)
            .add_service(GreeterServer(Greeter));
        tokio::spawn(server.serve_with_incoming(incoming));
        address
    }};
}

/// Serves the greeter and a page, both behind one layer.
macro_rules! serve_both {
    ($layer:expr) => {{
        let (incoming, address) = incoming();
        let app: Router = Routes::new(GreeterServer(Greeter))
            .into_axum_router()
            .route("/", get(|| async { "hello, browser" }))
            .layer($layer);
        let server = Server::builder().accept_http1(true).add_routes(app.into());
        tokio::spawn(server.serve_with_incoming(incoming));
        address
    }};
}

fn still() -> Local<TokenBucket, ManualClock> {
    LocalBuilder::new().clock(ManualClock::default()).build()
}

struct Caller(client::Grpc<Channel>);

impl Caller {
    async fn new(server: SocketAddr) -> Self {
        Self::at(IpAddr::V4(Ipv4Addr::LOCALHOST), server).await
    }

    async fn at(own: IpAddr, server: SocketAddr) -> Self {
        let endpoint = Endpoint::new(format!("http://{server}"))
            .unwrap()
            .local_address(Some(own));
        let channel = timeout(SOON, endpoint.connect())
            .await
            .expect("a connection in time")
            .unwrap();
        Self(client::Grpc::new(channel))
    }

    async fn call(&mut self, metadata: MetadataMap) -> Result<Response<HelloReply>, Status> {
        self.0.ready().await.unwrap();
        let mut request = tonic::Request::new(HelloRequest {
            name: "world".into(),
        });
        *request.metadata_mut() = metadata;
        let codec = ProstCodec::<HelloRequest, HelloReply>::default();
        let path = http::uri::PathAndQuery::from_static(METHOD);
        timeout(SOON, self.0.unary(request, path, codec))
            .await
            .expect("an answer in time")
    }

    async fn hello(&mut self) -> Result<Response<HelloReply>, Status> {
        self.call(MetadataMap::new()).await
    }

    async fn refused(&mut self) -> Status {
        self.hello().await.expect_err("the call is refused")
    }
}

fn field<'a>(metadata: &'a MetadataMap, name: &str) -> Option<&'a str> {
    metadata.get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_refusal_is_resource_exhausted_with_its_details() {
    let layer = RateLimitLayer::new(TokenBucket::per_minute(2))
        .store(still())
        .named("greet");
    let mut caller = Caller::new(serve!(layer.respond(Grpc::new()))).await;

    let answer = caller.hello().await.unwrap();
    assert_eq!(answer.get_ref().message, "hello, world");
    assert_eq!(
        field(answer.metadata(), "ratelimit"),
        Some("\"greet\";r=1;t=30")
    );
    assert_eq!(
        field(answer.metadata(), "ratelimit-policy"),
        Some("\"greet\";q=2;w=60")
    );
    caller.hello().await.unwrap();

    let status = caller.refused().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(
        status.message(),
        "rate limit exceeded: greet; retry after 30 s"
    );
    let retry = status.get_details_retry_info().expect("RetryInfo");
    assert_eq!(retry.retry_delay, Some(Duration::from_secs(30)));
    let quota = status.get_details_quota_failure().expect("QuotaFailure");
    assert_eq!(quota.violations.len(), 1);
    assert_eq!(quota.violations[0].subject, "greet");
    assert_eq!(
        quota.violations[0].description,
        "the quota of 2/1m is exhausted"
    );
    let metadata = status.metadata();
    assert_eq!(field(metadata, "grpc-retry-pushback-ms"), Some("30000"));
    assert_eq!(field(metadata, "ratelimit"), Some("\"greet\";r=0;t=30"));
    assert_eq!(
        field(metadata, "ratelimit-policy"),
        Some("\"greet\";q=2;w=60")
    );
}

#[tokio::test]
async fn a_call_that_can_never_pass_has_negative_pushback() {
    let layer = RateLimitLayer::new(TokenBucket::per_minute(2)).cost(Cost::new(3).unwrap());
    let mut caller = Caller::new(serve!(layer.respond(Grpc::new()))).await;
    let status = caller.refused().await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(
        field(status.metadata(), "grpc-retry-pushback-ms"),
        Some("-1")
    );
    assert!(status.get_details_retry_info().is_none());
    assert_eq!(
        status
            .get_details_quota_failure()
            .expect("QuotaFailure")
            .violations
            .len(),
        1
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn each_peer_has_a_budget_of_its_own() {
    let layer = RateLimitLayer::new(TokenBucket::per_day(1)).key(PeerIp::new());
    let server = serve!(layer.respond(Grpc::new()));
    for own in [[127, 0, 0, 1], [127, 0, 0, 2]] {
        // Two connections of one peer share its budget.
        Caller::at(own.into(), server).await.hello().await.unwrap();
        let status = Caller::at(own.into(), server).await.refused().await;
        assert_eq!(status.code(), Code::ResourceExhausted);
    }
}

#[tokio::test]
async fn an_undecided_call_is_unavailable_or_admitted() {
    let store = Remote::<TokenBucket>::open();
    store.failing.store(true, Ordering::SeqCst);
    let layer = || RateLimitLayer::new(TokenBucket::per_day(1)).respond(Grpc::new());

    let closed = layer().store(store.clone().fail_closed());
    let mut caller = Caller::new(serve!(closed)).await;
    let status = caller.refused().await;
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(field(status.metadata(), "ratelimit"), None);
    assert!(status.get_details_quota_failure().is_none());

    let mut open = Caller::new(serve!(layer().store(store.clone().fail_open()))).await;
    for _ in 0..3 {
        let answer = open.hello().await.unwrap();
        assert_eq!(field(answer.metadata(), "ratelimit"), None);
    }

    store.failing.store(false, Ordering::SeqCst);
    caller.hello().await.unwrap();
    assert_eq!(caller.refused().await.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn a_missing_key_has_the_status_of_its_cause() {
    let layer = || RateLimitLayer::new(TokenBucket::per_day(1)).respond(Grpc::new());

    let mut caller = Caller::new(serve!(layer().key(Header::new("x-api-key")))).await;
    let status = caller.refused().await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(
        status.message().contains("x-api-key"),
        "{}",
        status.message()
    );
    let mut metadata = MetadataMap::new();
    metadata.insert("x-api-key", "k1".parse().unwrap());
    caller.call(metadata.clone()).await.unwrap();
    assert_eq!(
        caller.call(metadata).await.unwrap_err().code(),
        Code::ResourceExhausted
    );

    let mut caller = Caller::new(serve!(layer().key(BearerToken))).await;
    assert_eq!(caller.refused().await.code(), Code::Unauthenticated);

    #[derive(Clone)]
    struct User(u64);
    let by_user = tollgate::key::Extension::new(|user: &User| user.0);
    let mut caller = Caller::new(serve!(layer().key(by_user))).await;
    let status = caller.refused().await;
    assert_eq!(
        (status.code(), status.message()),
        (Code::Internal, "internal error")
    );
}

#[tokio::test]
async fn one_budget_for_grpc_and_http_on_one_port() {
    let layer = RateLimitLayer::new(TokenBucket::per_day(3))
        .store(still())
        .key(PeerIp::new());
    let server = serve_both!(layer);
    let mut caller = Caller::new(server).await;
    caller.hello().await.unwrap();
    let page = browse(server, "GET", &[], "").await;
    assert!(
        page.starts_with("HTTP/1.1 200 ") && page.ends_with("hello, browser"),
        "{page}"
    );
    assert!(page.contains("ratelimit: \"default\";r=1;"), "{page}");
    caller.hello().await.unwrap();

    let status = caller.refused().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(
        field(status.metadata(), "grpc-retry-pushback-ms"),
        Some("28800000")
    );
    let page = browse(server, "GET", &[], "").await;
    assert!(page.starts_with("HTTP/1.1 429 "), "{page}");
    assert!(page.contains("\r\nretry-after: 28800\r\n"), "{page}");
    assert!(page.contains("#quota-exceeded"), "{page}");
    assert!(!page.contains("grpc-status"), "{page}");
}

#[tokio::test]
async fn grpc_web_is_answered_in_its_own_content_type() {
    let layer = RateLimitLayer::new(TokenBucket::per_day(1))
        .store(still())
        .key(PeerIp::new());
    let server = serve_both!(layer);
    browse(server, "GET", &[], "").await;
    for content_type in [
        "application/grpc-web",
        "application/grpc-web+proto",
        "application/grpc-web-text",
    ] {
        let answer = browse(server, "POST", &[("content-type", content_type)], "").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(
            answer.contains(&format!("\r\ncontent-type: {content_type}\r\n")),
            "{answer}"
        );
        assert!(answer.contains("\r\ngrpc-status: 8\r\n"), "{answer}");
        assert!(
            answer.contains("\r\naccess-control-expose-headers: "),
            "{answer}"
        );
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    }
    // Content types with the same prefix are not gRPC.
    let answer = browse(server, "POST", &[("content-type", "application/grpcx")], "").await;
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
}

/// Returns the response to an HTTP/1.1 request, as it appears on the wire.
async fn browse(server: SocketAddr, method: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut request = format!("{method} / HTTP/1.1\r\nhost: {server}\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    let exchange = async {
        let mut stream = TcpStream::connect(server).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    timeout(SOON, exchange).await.expect("an answer in time")
}

/// A message of gRPC: `HelloRequest { name: "x" }`, not compressed.
const FRAMED: [u8; 8] = [0, 0, 0, 0, 3, 0x0a, 1, b'x'];

#[tokio::test]
async fn trailers_of_admitted_calls_are_unchanged() {
    let layer = RateLimitLayer::new(TokenBucket::per_day(1)).store(still());
    let server = serve!(layer.respond(Grpc::new()));
    let stream = TokioIo::new(TcpStream::connect(server).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
            .await
            .unwrap();
    tokio::spawn(connection);
    let request = || {
        let uri = format!("http://{server}{METHOD}");
        let request = Request::post(uri)
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        request
            .body(Full::new(Bytes::from_static(&FRAMED)))
            .unwrap()
    };
    let answer = timeout(SOON, sender.send_request(request()))
        .await
        .expect("in time")
        .unwrap();
    assert!(answer.headers().contains_key("ratelimit"));
    assert!(!answer.headers().contains_key("grpc-status"));
    let body = timeout(SOON, answer.into_body().collect())
        .await
        .expect("in time")
        .unwrap();
    let trailers = body.trailers().expect("trailers").clone();
    assert_eq!(trailers["grpc-status"], "0");
    assert!(
        !trailers
            .keys()
            .any(|name| name.as_str().starts_with("ratelimit"))
    );

    let answer = timeout(SOON, sender.send_request(request()))
        .await
        .expect("in time")
        .unwrap();
    assert_eq!(
        (answer.status(), &answer.headers()["grpc-status"]),
        (StatusCode::OK, &"8".parse().unwrap())
    );
    assert_eq!(answer.headers()["content-type"], "application/grpc");
    let body = timeout(SOON, answer.into_body().collect())
        .await
        .expect("in time")
        .unwrap();
    assert_eq!(body.trailers(), None);
    assert!(body.to_bytes().is_empty());
}

/// Frames of HTTP/2 (RFC 9113 §4.1) and their flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn push_frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
}

/// Refusals over gRPC must be Trailers-Only: one frame, which ends the stream.
#[tokio::test]
async fn a_refusal_is_one_frame() {
    let layer = RateLimitLayer::new(TokenBucket::per_day(1)).store(still());
    let only_grpc = serve!(layer.clone().respond(Grpc::new()));
    let both = serve_both!(layer);
    assert!(Caller::new(only_grpc).await.hello().await.is_ok());
    for server in [only_grpc, both] {
        let frames = timeout(SOON, frames_of(server))
            .await
            .expect("an answer in time");
        let flags = frames[0].1;
        assert_eq!(frames[0].0, HEADERS, "{frames:?}");
        assert_eq!(
            flags & (END_STREAM | END_HEADERS),
            END_STREAM | END_HEADERS,
            "{frames:?}"
        );
        assert_eq!(frames.len(), 1, "{frames:?}");
    }
}

/// Calls the method. Returns the kind and the flags of each frame of the response.
async fn frames_of(server: SocketAddr) -> Vec<(u8, u8)> {
    let mut fields = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", METHOD),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        // A literal without indexing, with a literal name (RFC 7541 §6.2.2).
        fields.push(0);
        for text in [name, value] {
            fields.push(u8::try_from(text.len()).unwrap());
            fields.extend_from_slice(text.as_bytes());
        }
    }
    let mut request = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    push_frame(&mut request, SETTINGS, 0, 0, &[]);
    push_frame(&mut request, HEADERS, END_HEADERS, 1, &fields);
    push_frame(&mut request, DATA, END_STREAM, 1, &FRAMED);

    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.write_all(&request).await.unwrap();
    let mut frames = Vec::new();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let [a, b, c, kind, flags, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        if u32::from_be_bytes(id) == 1 {
            frames.push((kind, flags));
            if flags & END_STREAM != 0 {
                return frames;
            }
        }
    }
}
