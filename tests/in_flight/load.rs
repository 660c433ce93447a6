//! Many calls over connections of HTTP/1.1, HTTP/2 and gRPC, which end in all ways in which a call
//! over a network ends.

use std::{
    convert::Infallible,
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    panic::resume_unwind,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{Request, Response, StatusCode, header, uri::PathAndQuery};
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::TokioIo;
use support::Random;
use tokio::{io::AsyncWriteExt, task::yield_now, time::timeout};
use tollgate::{
    By, InFlight, Limit, RateLimitLayer,
    key::Header,
    observe::EventCounters,
    respond::{Grpc, Http},
    store::Local,
};
use tonic::{
    Code, client,
    transport::{Channel, Endpoint, Server, server::TcpIncoming},
};
use tonic_prost::ProstCodec;
use tower::{Service, ServiceBuilder, layer::layer_fn, service_fn};

use super::{
    connections::{
        self, Greeter, GreeterServer, HelloReply, HelloRequest, KEYS, LIMIT, Meter, SOON, app,
        key_of, nothing_is_held, over_http1, over_http2, request, serve,
    },
    endings::Units,
};

/// A server's store and meters, and the ways in which clients have ended calls.
struct Load {
    store: Local<InFlight>,
    decided: EventCounters,
    units: Units,
    meters: Vec<Meter>,
    calls: u64,
    endings: [AtomicU64; ENDINGS],
}

#[derive(Clone, Copy)]
enum Ending {
    Ended,
    BodyDropped,
    Cancelled,
    Panicked,
    /// Only over HTTP/1.1.
    Upgraded,
}

const ENDINGS: usize = Ending::Upgraded as usize + 1;

impl Load {
    fn new(calls: u64) -> Arc<Self> {
        Arc::new(Self {
            store: Local::new(),
            decided: EventCounters::new(),
            units: Units::default(),
            meters: (0..KEYS).map(|_| Meter::default()).collect(),
            calls,
            endings: Default::default(),
        })
    }

    fn layer(&self) -> RateLimitLayer<Limit<InFlight, By<Header>>, Local<InFlight>, Http> {
        connections::layer(&self.store, InFlight::at_most(LIMIT))
            .observe((self.decided.clone(), self.units.clone()))
    }

    /// Returns `true` once the server has decided all calls: those that never reached it count for
    /// nothing.
    fn is_over(&self) -> bool {
        self.decided.snapshot().decisions() >= self.calls
    }

    fn count(&self, ending: Ending) {
        self.endings[ending as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for the clients, and checks that no unit was lost, or held beyond the limit.
    async fn ends(&self, clients: impl Iterator<Item = impl Future<Output = ()> + Send + 'static>) {
        let clients: Vec<_> = clients.map(tokio::spawn).collect();
        for client in clients {
            client.await.unwrap();
        }
        nothing_is_held(&self.store).await;
        let most: Vec<u64> = self.meters.iter().map(Meter::most).collect();
        assert!(most.iter().all(|most| *most <= LIMIT), "{most:?}");
        assert!(most.contains(&LIMIT), "{most:?}");
        assert!(self.meters.iter().all(|meter| meter.now() == 0));
        let decided = self.decided.snapshot();
        let expected = [decided.admitted; 2];
        assert_eq!([self.units.held(), self.units.released()], expected);
        assert!(
            decided.refused > 0 && decided.admitted > self.calls / 4,
            "{decided:?}"
        );
    }

    /// Checks that calls have ended in each of these ways.
    fn ended_by(&self, endings: &[Ending]) {
        let count = |ending: &Ending| self.endings[*ending as usize].load(Ordering::Relaxed);
        let counts: Vec<u64> = endings.iter().map(count).collect();
        let enough = |count: &u64| *count > self.calls / 200;
        assert!(counts.iter().all(enough), "{counts:?}");
    }
}

/// Polls a few times at most, and drops what is not ready then.
async fn give_up<F: Future>(answer: F, random: &mut Random) -> bool {
    let mut answer = pin!(answer);
    for _ in 0..1 + random.below(16) {
        if answer.as_mut().now_or_never().is_some() {
            return false;
        }
        yield_now().await;
    }
    true
}

/// A client's side of a connection.
enum Sender {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

impl Sender {
    async fn is_ready(&mut self) -> bool {
        let ready = async {
            match self {
                Self::Http1(sender) => sender.ready().await.is_ok(),
                Self::Http2(sender) => sender.ready().await.is_ok(),
            }
        };
        timeout(SOON, ready).await.unwrap()
    }

    fn send(
        &mut self,
        request: Request<Empty<Bytes>>,
    ) -> BoxFuture<'static, hyper::Result<Response<Incoming>>> {
        match self {
            Self::Http1(sender) => Box::pin(sender.send_request(request)),
            Self::Http2(sender) => Box::pin(sender.send_request(request)),
        }
    }

    /// Makes one call, and ends it in one of the ways. The connection may be closed then.
    async fn call(&mut self, load: &Load, random: &mut Random) {
        let key = random.below(KEYS);
        let chosen = random.below(24);
        if chosen == 0 {
            let path = *random.choose(&["/stream", "/stream", "/pending", "/endless"]);
            let answer = self.send(request(path, key));
            if give_up(answer, random).await {
                load.count(Ending::Cancelled);
            }
            return;
        }
        let upgrades = chosen == 1 && matches!(self, Self::Http1(_));
        let path = match chosen {
            1 if upgrades => "/upgrades",
            2 => "/panics",
            3 if random.once_in(4) => "/endless",
            _ => "/stream",
        };
        let mut request = request(path, key);
        if upgrades {
            let headers = request.headers_mut();
            headers.insert(header::CONNECTION, "upgrade".parse().unwrap());
            headers.insert(header::UPGRADE, "bytes".parse().unwrap());
        }
        let Ok(mut response) = timeout(SOON, self.send(request)).await.unwrap() else {
            if path == "/panics" {
                load.count(Ending::Panicked);
            }
            return;
        };
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => {
                load.count(Ending::Upgraded);
                let upgrade = timeout(SOON, hyper::upgrade::on(&mut response));
                let mut io = TokioIo::new(upgrade.await.unwrap().unwrap());
                io.write_all(b"bytes").await.unwrap();
                return;
            }
            status => assert!(matches!(status.as_u16(), 200 | 429), "{path}: {status}"),
        }
        let frames = match chosen {
            3 | 4 => random.below(4),
            _ => u64::MAX,
        };
        let mut body = response.into_body();
        for _ in 0..frames {
            let Some(frame) = timeout(SOON, body.frame()).await.unwrap() else {
                load.count(Ending::Ended);
                return;
            };
            frame.unwrap();
        }
        load.count(Ending::BodyDropped);
    }
}

/// Connects, and calls up to 64 times over each connection.
async fn connects(server: SocketAddr, load: Arc<Load>, seed: u64, is_http2: bool) {
    let mut random = Random::new(seed);
    while !load.is_over() {
        let mut sender = match is_http2 {
            true => Sender::Http2(timeout(SOON, over_http2(server)).await.unwrap()),
            false => Sender::Http1(timeout(SOON, over_http1(server)).await.unwrap()),
        };
        for _ in 0..64 {
            if load.is_over() || !sender.is_ready().await {
                break;
            }
            sender.call(&load, &mut random).await;
        }
    }
}

async fn over_http(calls: u64, is_http2: bool) -> Arc<Load> {
    let load = Load::new(calls);
    let server = serve(app(load.layer(), &load.meters)).await;
    let clients = (0..16).map(|seed| connects(server, Arc::clone(&load), seed, is_http2));
    load.ends(clients).await;
    load
}

async fn over_http1_alone(calls: u64) {
    let load = over_http(calls, false).await;
    load.ended_by(&[
        Ending::Ended,
        Ending::BodyDropped,
        Ending::Cancelled,
        Ending::Panicked,
        Ending::Upgraded,
    ]);
}

async fn over_http2_alone(calls: u64) {
    let load = over_http(calls, true).await;
    load.ended_by(&[
        Ending::Ended,
        Ending::BodyDropped,
        Ending::Cancelled,
        Ending::Panicked,
    ]);
}

type GrpcRequest = Request<tonic::body::Body>;

/// Serves gRPC, with a meter below the limit that takes some turns, and panics if it is told so.
fn serve_grpc(load: &Load) -> SocketAddr {
    let incoming = TcpIncoming::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = incoming.local_addr().unwrap();
    let incoming = incoming.with_nodelay(Some(true));
    let meters = load.meters.clone();
    let metered = layer_fn(move |routes: tonic::service::Routes| {
        let meters = meters.clone();
        service_fn(move |request: GrpcRequest| {
            let (mut routes, meters) = (routes.clone(), meters.clone());
            async move {
                let inside = meters[key_of(&request)].enter();
                for _ in 0..4 {
                    yield_now().await;
                }
                if request.headers().contains_key("x-panics") {
                    resume_unwind(Box::new("as it was told"));
                }
                let response = routes.call(request).await?;
                Ok::<_, Infallible>(response.map(|body| {
                    // The trailers end the call, also before the body is dropped.
                    let mut inside = Some(inside);
                    let metered = body.map_frame(move |frame| {
                        if frame.is_trailers() {
                            drop(inside.take());
                        }
                        frame
                    });
                    tonic::body::Body::new(metered)
                }))
            }
        })
    });
    let layers = ServiceBuilder::new()
        .layer(load.layer().respond(Grpc::new()))
        .layer(metered);
    let server = Server::builder()
        .layer(layers.into_inner())
        .add_service(GreeterServer(Greeter));
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

async fn greets(server: SocketAddr, load: Arc<Load>, seed: u64) {
    let mut random = Random::new(seed);
    let endpoint = Endpoint::new(format!("http://{server}")).unwrap();
    let mut channel: Channel = timeout(SOON, endpoint.connect()).await.unwrap().unwrap();
    while !load.is_over() {
        if random.once_in(200) {
            channel = timeout(SOON, endpoint.connect()).await.unwrap().unwrap();
        }
        let mut client = client::Grpc::new(channel.clone());
        timeout(SOON, client.ready()).await.unwrap().unwrap();
        let name = "world".into();
        let mut call = tonic::Request::new(HelloRequest { name });
        let metadata = call.metadata_mut();
        metadata.insert("x-api-key", random.below(KEYS).into());
        let panics = random.once_in(16);
        if panics {
            metadata.insert("x-panics", 1.into());
        }
        let codec = ProstCodec::<HelloRequest, HelloReply>::default();
        let path = PathAndQuery::from_static("/greeter.Greeter/SayHello");
        let answer = client.unary(call, path, codec);
        if random.once_in(12) {
            if give_up(answer, &mut random).await {
                load.count(Ending::Cancelled);
            }
            continue;
        }
        match timeout(SOON, answer).await.unwrap() {
            Ok(_) => load.count(Ending::Ended),
            Err(status) if status.code() == Code::ResourceExhausted => {}
            Err(status) if panics => {
                assert_ne!(status.code(), Code::Ok);
                load.count(Ending::Panicked);
            }
            Err(status) => panic!("{status:?}"),
        }
    }
}

async fn over_grpc(calls: u64) {
    let load = Load::new(calls);
    let server = serve_grpc(&load);
    load.ends((0..16).map(|seed| greets(server, Arc::clone(&load), seed)))
        .await;
    load.ended_by(&[Ending::Ended, Ending::Cancelled, Ending::Panicked]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_over_http1_give_back_what_they_hold() {
    over_http1_alone(40_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_over_http2_give_back_what_they_hold() {
    over_http2_alone(30_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_over_grpc_give_back_what_they_hold() {
    over_grpc(30_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn slow_a_million_calls_give_back_what_they_hold() {
    over_http1_alone(400_000).await;
    over_http2_alone(300_000).await;
    over_grpc(300_000).await;
}
