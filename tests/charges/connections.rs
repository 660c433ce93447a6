//! Charges over real connections: axum and tonic servers, and clients that close in the middle.
#![cfg(all(feature = "axum", feature = "tonic"))]

use std::{
    convert::Infallible,
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    routing::{MethodRouter, get},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::{Request, StatusCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    time::timeout,
};
use tollgate::{
    Policy, RateLimitLayer, TokenBucket,
    key::Key,
    respond::{Grpc, SettleByBody},
    store::Local,
};
use tonic::{
    Status, client,
    server::{self, NamedService, ServerStreamingService},
    transport::{Endpoint, Server, server::TcpIncoming},
};
use tonic_prost::ProstCodec;
use tower::{Service, ServiceBuilder};

use super::{UNITS, at_once, cost};

const SOON: Duration = Duration::from_secs(20);

type Fed<T> = Arc<Mutex<Option<UnboundedReceiver<T>>>>;

/// Returns a stream that the test feeds, for one handler to take.
fn fed<T>() -> (UnboundedSender<T>, Fed<T>) {
    let (sender, receiver) = unbounded_channel();
    (sender, Arc::new(Mutex::new(Some(receiver))))
}

fn take<T>(fed: &Fed<T>) -> impl Stream<Item = T> + use<T> {
    let receiver = fed.lock().unwrap().take().unwrap();
    stream::unfold(receiver, async |mut receiver| {
        let item = receiver.recv().await?;
        Some((item, receiver))
    })
}

/// Waits until so many units are charged; returns how many are after 10 seconds otherwise.
#[allow(clippy::disallowed_methods, reason = "connections live in real time")]
async fn charged(store: &Local<TokenBucket>, expected: u64) -> u64 {
    let now = || {
        let look = store.look(&Policy::default(), &at_once(UNITS), &Key::GLOBAL);
        UNITS - look.remaining().unwrap()
    };
    for _ in 0..2_000 {
        if now() == expected {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    now()
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, app).into_future());
    address
}

/// A client of HTTP/1.1 that reads as much as it is told.
struct Client(TcpStream);

impl Client {
    async fn send(server: SocketAddr, request: &str) -> Self {
        let mut stream = TcpStream::connect(server).await.unwrap();
        let request = format!("{request} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        Self(stream)
    }

    /// Reads until the text contains so many `x`, or `end`.
    async fn read_until(&mut self, is_enough: impl Fn(&str) -> bool) -> String {
        let mut text = String::new();
        let mut buffer = [0; 4096];
        while !is_enough(&text) {
            let read = timeout(SOON, self.0.read(&mut buffer))
                .await
                .unwrap()
                .unwrap();
            assert!(read > 0, "closed after {text}");
            text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
        text
    }
}

fn count(text: &str) -> usize {
    text.matches('x').count()
}

#[tokio::test]
async fn responses_of_axum_settle_what_was_sent() {
    let store = Local::new();
    let (feed, body) = fed::<Bytes>();
    let limit = RateLimitLayer::new(at_once(UNITS))
        .store(store.clone())
        .cost(cost(100))
        .charge_handle();
    let app = Router::new()
        .route("/twelve", get(async || "xxxxxxxxxxxx"))
        .route("/empty", get(async || StatusCode::NO_CONTENT))
        .route(
            "/stream",
            get(async move || Body::from_stream(take(&body).map(Ok::<_, Infallible>))),
        )
        .layer(
            ServiceBuilder::new()
                .layer(limit)
                .layer(SettleByBody::bytes()),
        );
    let server = serve(app).await;

    let mut expected = 0;
    for (request, units) in [("GET /twelve", 12), ("GET /empty", 0), ("HEAD /twelve", 0)] {
        let mut client = Client::send(server, request).await;
        client
            .read_until(|text| text.contains("\r\n\r\n") && count(text) as u64 >= units)
            .await;
        expected += units;
        // The connection is still open.
        assert_eq!(charged(&store, expected).await, expected, "{request}");
    }

    let mut client = Client::send(server, "GET /stream").await;
    feed.send(Bytes::from(vec![b'x'; 500])).unwrap();
    client.read_until(|text| count(text) >= 500).await;
    assert_eq!(charged(&store, expected + 100).await, expected + 100);
    feed.send(Bytes::from(vec![b'x'; 700])).unwrap();
    client.read_until(|text| count(text) >= 700).await;
    drop(client);
    assert_eq!(charged(&store, expected + 1_200).await, expected + 1_200);
    // Its body is gone.
    assert!(feed.send(Bytes::new()).is_err());
}

/// Clients hang up while their handler works, three times, and are then refused.
async fn hang_up(store: &Local<TokenBucket>, limited: impl FnOnce(MethodRouter) -> Router) {
    let (called, mut calls) = unbounded_channel();
    let handler = get(move || {
        let (working, left) = oneshot::channel::<()>();
        called.send(left).unwrap();
        async move {
            let _working = working;
            std::future::pending::<&'static str>().await
        }
    });
    let server = serve(limited(handler)).await;
    for hang_ups in 1..=3 {
        let client = Client::send(server, "GET /").await;
        let left = timeout(SOON, calls.recv()).await.unwrap().unwrap();
        drop(client);
        // The server has dropped the handler.
        assert!(timeout(SOON, left).await.unwrap().is_err());
        let units = hang_ups * (UNITS / 3);
        assert_eq!(charged(store, units).await, units);
    }
    let mut client = Client::send(server, "GET /").await;
    let answer = client.read_until(|text| text.contains("\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
}

#[tokio::test]
async fn clients_of_axum_that_hang_up_are_charged() {
    let store = Local::new();
    let limit = RateLimitLayer::new(at_once(UNITS))
        .store(store.clone())
        .cost(cost(UNITS / 3))
        .charge_after(|_: &http::Response<Body>| false);
    let limited = |handler| Router::new().route("/", handler).layer(limit);
    hang_up(&store, limited).await;
}

/// Also if each response would have been free.
#[tokio::test]
async fn clients_of_axum_that_hang_up_stay_charged() {
    let store = Local::new();
    let limit = RateLimitLayer::new(at_once(UNITS))
        .store(store.clone())
        .cost(cost(UNITS / 3))
        .charge_if(|_: &http::Response<Body>| false);
    let limited = |handler| Router::new().route("/", handler).layer(limit);
    hang_up(&store, limited).await;
}

#[derive(Clone, PartialEq, prost::Message)]
struct Number {
    #[prost(uint64, tag = "1")]
    value: u64,
}

type BoxFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Answers a call with the numbers that the test feeds.
#[derive(Clone)]
struct Numbers(Fed<u64>);

impl ServerStreamingService<Number> for Numbers {
    type Response = Number;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<Number, Status>> + Send>>;
    type Future = BoxFuture<tonic::Response<Self::ResponseStream>, Status>;

    fn call(&mut self, _: tonic::Request<Number>) -> Self::Future {
        let numbers = take(&self.0).map(|value| Ok(Number { value }));
        Box::pin(async {
            Ok(tonic::Response::new(
                Box::pin(numbers) as Self::ResponseStream
            ))
        })
    }
}

impl NamedService for Numbers {
    const NAME: &'static str = "numbers.Numbers";
}

impl Service<Request<tonic::body::Body>> for Numbers {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let mut grpc = server::Grpc::new(ProstCodec::<Number, Number>::default());
            Ok(grpc.server_streaming(service, request).await)
        })
    }
}

/// The messages of a stream are counted as frames, whether it ends or the client cancels it.
#[tokio::test]
async fn streams_of_tonic_settle_what_was_sent() {
    let mut expected = 0;
    let store = Local::new();
    for cancels in [true, false] {
        let (feed, numbers) = fed::<u64>();
        let limit = RateLimitLayer::new(at_once(UNITS))
            .store(store.clone())
            .respond(Grpc::new())
            .cost(cost(100))
            .charge_handle();
        let incoming = TcpIncoming::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = incoming.local_addr().unwrap();
        let server = Server::builder()
            .layer(limit)
            .layer(SettleByBody::frames())
            .add_service(Numbers(numbers));
        tokio::spawn(server.serve_with_incoming(incoming));

        let endpoint = Endpoint::new(format!("http://{address}")).unwrap();
        let mut grpc = client::Grpc::new(timeout(SOON, endpoint.connect()).await.unwrap().unwrap());
        grpc.ready().await.unwrap();
        let codec = ProstCodec::<Number, Number>::default();
        let path = http::uri::PathAndQuery::from_static("/numbers.Numbers/All");
        let request = tonic::Request::new(Number { value: 0 });
        let call = grpc.server_streaming(request, path, codec);
        let mut answer = timeout(SOON, call).await.unwrap().unwrap().into_inner();
        for value in 1..=3 {
            feed.send(value).unwrap();
            let message = timeout(SOON, answer.message()).await.unwrap().unwrap();
            assert_eq!(message, Some(Number { value }));
            assert_eq!(charged(&store, expected + 100).await, expected + 100);
        }
        expected += 3;
        if cancels {
            drop(answer);
            assert_eq!(charged(&store, expected).await, expected);
            assert!(feed.send(4).is_err());
        } else {
            drop(feed);
            let end = timeout(SOON, answer.message()).await.unwrap().unwrap();
            assert_eq!(end, None);
            assert_eq!(charged(&store, expected).await, expected);
        }
    }
}
