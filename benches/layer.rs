//! The layer over a service that is always ready, beside those of `tower_governor` and `rate-net`.
//!
//! All of them wrap the same service and answer the same requests, which are made before the measurement. The time of
//! the bare call is subtracted from all results.
#![allow(
    clippy::float_arithmetic,
    clippy::unwrap_used,
    reason = "a benchmark prints ratios, and stops where something is odd"
)]

use std::{
    convert::Infallible,
    future::{Ready, ready},
    hint::black_box,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::{body::Body, extract::ConnectInfo};
use futures_util::FutureExt;
use http::{HeaderValue, Request, Response, StatusCode, header};
use rate_net::{RateLimiter, tower as rate_net_tower};
use support::{
    Random,
    bench::{Contender, Mode, Race, Reads, StopWatch, Table},
    counting::{Counting, allocations},
};
use tollgate::{
    RateLimitLayer, TokenBucket,
    key::PeerIp,
    respond::{Headers, Http},
    store::LocalBuilder,
};
use tower::{Layer, Service};
use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUNDS: usize = 41;

/// The number of requests that are made before each measurement.
///
/// As few as an allocator keeps at hand: what it does once more of them are gone (glibc merges freed pieces
/// at 64 KiB) would be counted for whoever's turn it is.
const BATCH: usize = 8;

/// A burst that no run uses up.
const MANY: u32 = 10_000;

/// Answers at once.
#[derive(Clone)]
struct Inner;

impl Service<Request<Body>> for Inner {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        ready(Ok(Response::new(Body::empty())))
    }
}

/// A request with a few ordinary headers, and the peer's address where each looks first: as axum puts it
/// for `tower_governor` and us, and plain for `rate-net`.
fn request(client: &SocketAddr) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_static("example.com"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static("bench"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    let extensions = request.extensions_mut();
    extensions.insert(ConnectInfo(*client));
    extensions.insert(client.ip());
    request
}

/// A service like the inner one, wrapped or not.
trait Answers {
    fn answer(&mut self, request: Request<Body>) -> Response<Body>;
}

impl<S> Answers for S
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    fn answer(&mut self, request: Request<Body>) -> Response<Body> {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(self.poll_ready(&mut cx).is_ready());
        match self.call(request).now_or_never() {
            Some(Ok(response)) => response,
            None => panic!("the service is ready at once"),
        }
    }
}

/// The expected response once every client is known.
#[derive(Clone, Copy)]
struct Expected {
    status: StatusCode,
    headers: &'static [&'static str],
}

fn contender<'a, S>(
    mode: &Mode,
    name: &'static str,
    mut service: S,
    clients: &'a [SocketAddr],
    expected: Expected,
) -> Contender<'a>
where
    S: Answers + 'a,
{
    for client in clients {
        assert_eq!(
            service.answer(request(client)).status(),
            StatusCode::OK,
            "{name}"
        );
    }
    let response = service.answer(request(&clients[0]));
    assert_eq!(response.status(), expected.status, "{name}");
    for header in expected.headers {
        assert!(
            response.headers().contains_key(*header),
            "{name}: no {header}"
        );
    }
    assert!(
        !expected.headers.is_empty() || response.headers().is_empty(),
        "{name}"
    );

    // Few at a time: a server has just read its request.
    let mut requests = Vec::with_capacity(BATCH);
    let mut turns = move |watch: &mut StopWatch, batches: usize| {
        for clients in clients.chunks(BATCH).cycle().take(batches) {
            requests.extend(clients.iter().map(request));
            watch.start();
            let as_expected = requests
                .drain(..)
                .map(|request| black_box(service.answer(black_box(request))))
                .filter(|response| response.status() == expected.status)
                .count();
            watch.stop();
            assert_eq!(as_expected, clients.len(), "{name}");
        }
    };
    let mut watch = StopWatch::default();
    let of_requests = allocations(|| clients[..BATCH].iter().map(request).for_each(drop)).0;
    let (allocations, ()) = allocations(|| turns(&mut watch, 1));
    let batches = mode.pick(6400, 1);
    let turn = move |_| {
        let mut watch = StopWatch::default();
        turns(&mut watch, batches);
        watch.per(batches * BATCH)
    };
    Contender {
        name,
        allocations: (allocations - of_requests) as f64 / BATCH as f64,
        turn: Box::new(turn),
    }
}

/// One token per hour, and so many at once.
fn rule(burst: u32) -> TokenBucket {
    TokenBucket::per_hour(1).burst(burst.into())
}

macro_rules! governor {
    ($burst:expr $(, $with:ident)?) => {{
        let mut config = GovernorConfigBuilder::default();
        config.period(Duration::from_secs(3600)).burst_size($burst);
        GovernorLayer::new(config $(.$with())? .finish().unwrap())
    }};
}

fn rate_net(burst: u32) -> rate_net_tower::RateLimitLayer<rate_net_tower::PeerIp> {
    let limiter = RateLimiter::builder()
        .quota(1, Duration::from_secs(3600))
        .burst(burst)
        .build();
    rate_net_tower::RateLimitLayer::new(limiter, rate_net_tower::PeerIp::default())
}

/// The parts that all races share.
struct Course<'a> {
    mode: &'a Mode,
    clients: &'a [SocketAddr],
    table: Table,
}

const ADMITTED: Expected = Expected {
    status: StatusCode::OK,
    headers: &[],
};

impl<'a> Course<'a> {
    /// One who lets everybody pass, with these headers.
    fn admits<L>(
        &self,
        name: &'static str,
        layer: L,
        headers: &'static [&'static str],
    ) -> Contender<'a>
    where
        L: Layer<Inner, Service: Answers + 'a>,
    {
        let expected = Expected {
            headers,
            ..ADMITTED
        };
        contender(self.mode, name, layer.layer(Inner), self.clients, expected)
    }

    /// One who refuses everybody, with these headers.
    fn refuses<L>(
        &self,
        name: &'static str,
        layer: L,
        headers: &'static [&'static str],
    ) -> Contender<'a>
    where
        L: Layer<Inner, Service: Answers + 'a>,
    {
        let expected = Expected {
            status: StatusCode::TOO_MANY_REQUESTS,
            headers,
        };
        contender(self.mode, name, layer.layer(Inner), self.clients, expected)
    }

    fn race(
        &mut self,
        name: &'static str,
        contenders: Vec<Contender<'a>>,
        targets: &'static [(&'static str, &'static str)],
    ) {
        let bare = contender(self.mode, "bare", Inner, self.clients, ADMITTED);
        let race = Race {
            name,
            bare: Some(bare),
            contenders,
            targets,
        };
        self.table.race(self.mode, ROUNDS, race);
    }
}

fn admitted_without_headers(course: &mut Course<'_>) {
    let told = Http::empty().headers(Headers::None);
    // As those of others, who leave nothing in a request.
    let respond = told.clone().outcome(false);
    let ours = RateLimitLayer::new(rule(MANY))
        .key(PeerIp::new())
        .respond(respond.clone());
    let told = RateLimitLayer::new(rule(MANY))
        .key(PeerIp::new())
        .respond(told);
    // It lies in the nearest cache; the default one, with room for a million keys, does not.
    let small = RateLimitLayer::new(rule(MANY))
        .key(PeerIp::new())
        .store(LocalBuilder::new().capacity(2_000).build())
        .respond(respond);
    let contenders = vec![
        course.admits("tollgate", ours, &[]),
        course.admits("tower_governor", governor!(MANY), &[]),
        course.admits("rate-net", rate_net(MANY), &[]),
        course.admits("tollgate with room for 2,000 keys", small, &[]),
        course.admits("tollgate, with the outcome", told, &[]),
    ];
    course.race(
        "admitted, no headers",
        contenders,
        &[("tower_governor", "≤ 0.9")],
    );
}

fn admitted_with_headers(course: &mut Course<'_>) {
    let respond = Http::empty().headers(Headers::Draft);
    let ours = RateLimitLayer::new(rule(MANY))
        .key(PeerIp::new())
        .respond(respond.clone());
    let untold = RateLimitLayer::new(rule(MANY))
        .key(PeerIp::new())
        .respond(respond.outcome(false));
    let governor = governor!(MANY, use_headers);
    let rate_net = rate_net(MANY)
        .with_headers_on_success(true)
        .with_policy("default");
    let draft = &["ratelimit", "ratelimit-policy"];
    let contenders = vec![
        course.admits("tollgate", ours, draft),
        course.admits(
            "tower_governor",
            governor,
            &["x-ratelimit-limit", "x-ratelimit-remaining"],
        ),
        course.admits("rate-net", rate_net, draft),
        course.admits("tollgate without the outcome in extensions", untold, draft),
    ];
    course.race(
        "admitted, headers",
        contenders,
        &[("tower_governor", "≤ 0.5")],
    );
}

fn refused(course: &mut Course<'_>) {
    let respond = Http::empty().headers(Headers::Draft);
    let ours = RateLimitLayer::new(rule(1))
        .key(PeerIp::new())
        .respond(respond);
    let draft = &["retry-after", "ratelimit", "ratelimit-policy"];
    let contenders = vec![
        course.refuses("tollgate", ours, draft),
        course.refuses(
            "tower_governor",
            governor!(1, use_headers),
            &["retry-after", "x-ratelimit-limit", "x-ratelimit-remaining"],
        ),
        course.refuses(
            "rate-net",
            rate_net(1),
            &[
                "retry-after",
                "ratelimit-limit",
                "ratelimit-remaining",
                "ratelimit-reset",
            ],
        ),
        course.refuses(
            "rate-net, draft headers too",
            rate_net(1).with_policy("default"),
            draft,
        ),
    ];
    course.race("refused, headers", contenders, &[("rate-net", "≤ 0.5")]);
}

fn main() {
    let mode = &Mode::from_args();
    let mut clients: Vec<SocketAddr> = (0..mode.pick(1024, BATCH as u32))
        .map(|n| (IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n)), 4711).into())
        .collect();
    Random::new(3).shuffle(&mut clients);
    let mut course = Course {
        mode,
        clients: &clients,
        table: Table::new(Reads::TimeAboveBare),
    };
    if mode.runs("admitted, no headers") {
        admitted_without_headers(&mut course);
    }
    if mode.runs("admitted, headers") {
        admitted_with_headers(&mut course);
    }
    if mode.runs("refused, headers") {
        refused(&mut course);
    }
    course.table.print(mode, ROUNDS);
}
