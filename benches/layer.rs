//! The layer over a service that is always ready, beside those of `tower_governor` and `rate-net`.
//!
//! All of them wrap the same service and answer the same requests, which are made before the
//! measurement. The time of the bare call is subtracted from all results.
#![allow(
    clippy::float_arithmetic,
    clippy::unwrap_used,
    reason = "a benchmark prints ratios, and stops where something is odd"
)]

use std::{
    cell::RefCell,
    convert::Infallible,
    future::{Ready, ready},
    hint::black_box,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::{body::Body, extract::ConnectInfo};
use futures_util::FutureExt;
use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use rate_net::{RateLimiter, tower as rate_net_tower};
use support::{
    Random,
    bench::{Contender, Mode, Race, Reads, StopWatch, Table},
    counting::{Counting, allocations},
};
use tollgate::{
    AnyRule, BoxLimit, InFlight, Limit, Outcome, Permit, RateLimitLayer, TokenBucket,
    config::RouteLimits,
    key::PeerIp,
    observe::EventCounters,
    respond::{Headers, Http},
    store::LocalBuilder,
};
use tower::{Layer, Service, layer::util::Identity};
use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUNDS: usize = 41;

/// The number of requests that are made before each measurement.
const BATCH: usize = 256;

/// A burst that no run uses up.
const MANY: u32 = 10_000;

thread_local! {
    /// The requests that reached the inner service.
    static KEPT: RefCell<Vec<Request<Body>>> = const { RefCell::new(Vec::new()) };
}

/// Answers at once.
#[derive(Clone, Copy)]
enum Inner {
    /// Keeps its requests until the measurement is over. Dropping them takes longer than a
    /// decision, and glibc merges freed memory beyond 64 KiB, which would be charged to whoever's
    /// turn it is.
    Keeps,
    /// Drops its requests, as a layer does that refuses them.
    Drops,
}

impl Service<Request<Body>> for Inner {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Self::Keeps = self {
            // A layer that leaves something in the request pays for dropping it.
            drop(request.extensions_mut().remove::<Outcome>());
            // The call would last until the measurement is over.
            drop(Permit::take(request.extensions_mut()));
            KEPT.with_borrow_mut(|kept| kept.push(request));
        }
        ready(Ok(Response::new(Body::empty())))
    }
}

/// A request with a few ordinary headers, and the peer's address where each looks first: as axum
/// puts it for `tower_governor` and us, and plain for `rate-net`.
fn request(client: &SocketAddr) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = Uri::from_static("/v1/users/42/orders?page=2");
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

impl Expected {
    fn admitted(headers: &'static [&'static str]) -> Self {
        Self {
            status: StatusCode::OK,
            headers,
        }
    }

    fn refused(headers: &'static [&'static str]) -> Self {
        Self {
            status: StatusCode::TOO_MANY_REQUESTS,
            headers,
        }
    }
}

fn contender<'a, S>(
    batches: usize,
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

    let mut requests = Vec::with_capacity(BATCH);
    let mut chunks = clients.chunks_exact(BATCH).cycle();
    let mut turns = move |watch: &mut StopWatch, count: usize| {
        for clients in chunks.by_ref().take(count) {
            requests.extend(clients.iter().map(request));
            watch.start();
            let as_expected = requests
                .drain(..)
                .map(|request| black_box(service.answer(black_box(request))))
                .filter(|response| response.status() == expected.status)
                .count();
            watch.stop();
            assert_eq!(as_expected, BATCH, "{name}");
            KEPT.with_borrow_mut(Vec::clear);
        }
    };
    KEPT.with_borrow_mut(|kept| {
        kept.clear();
        kept.reserve(BATCH);
    });
    let mut watch = StopWatch::default();
    let of_requests = allocations(|| clients[..BATCH].iter().map(request).for_each(drop)).0;
    let (allocations, ()) = allocations(|| turns(&mut watch, 1));
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

/// The clients of races, and their results.
struct Course<'a> {
    mode: &'a Mode,
    rounds: usize,
    clients: &'a [SocketAddr],
    table: &'a mut Table,
}

impl<'a> Course<'a> {
    fn contender<L>(&self, name: &'static str, layer: L, expected: Expected) -> Contender<'a>
    where
        L: Layer<Inner, Service: Answers + 'a>,
    {
        self.over(Inner::Keeps, name, layer, expected)
    }

    fn over<L>(
        &self,
        inner: Inner,
        name: &'static str,
        layer: L,
        expected: Expected,
    ) -> Contender<'a>
    where
        L: Layer<Inner, Service: Answers + 'a>,
    {
        // No client may use up its burst.
        let most = MANY as usize * self.clients.len() / BATCH / (self.rounds + 3);
        let batches = self.mode.pick(most.min(200), 1);
        contender(batches, name, layer.layer(inner), self.clients, expected)
    }

    /// Races contenders that all let their requests reach the inner service, or none of them.
    fn race(
        &mut self,
        name: &str,
        bare: Inner,
        contenders: Vec<Contender<'a>>,
        targets: &'static [(&'static str, &'static str)],
    ) {
        let race = Race {
            name,
            bare: Some(self.over(bare, "bare", Identity::new(), Expected::admitted(&[]))),
            contenders,
            targets,
        };
        self.table.race(self.mode, self.rounds, race);
    }
}

fn admitted_without_headers(course: &mut Course<'_>, name: &str) {
    let bare = Http::empty().headers(Headers::None);
    // As those of others, who leave nothing in a request.
    let respond = bare.clone().outcome(false);
    let ours = RateLimitLayer::new(rule(MANY))
        .key(PeerIp::new())
        .respond(respond.clone());
    let bare = RateLimitLayer::new(rule(MANY))
        .key(PeerIp::new())
        .respond(bare);
    // With few clients it lies in the nearest cache; the default one, with room for a million keys,
    // does not.
    let small = RateLimitLayer::new(rule(MANY))
        .key(PeerIp::new())
        .store(
            LocalBuilder::new()
                .capacity(2 * course.clients.len())
                .build(),
        )
        .respond(respond.clone());
    let counted = RateLimitLayer::new(rule(MANY))
        .key(PeerIp::new())
        .respond(respond)
        .observe(EventCounters::new());
    let plain = Expected::admitted(&[]);
    let contenders = vec![
        course.contender("tollgate", ours, plain),
        course.contender("tower_governor", governor!(MANY), plain),
        course.contender("rate-net", rate_net(MANY), plain),
        course.contender("tollgate with room for twice the clients", small, plain),
        course.contender("tollgate, with the outcome", bare, plain),
        course.contender("tollgate, with counters", counted, plain),
    ];
    course.race(
        name,
        Inner::Keeps,
        contenders,
        &[("tower_governor", "≤ 0.9")],
    );
}

/// A limit on a dry run beside the same one alive, without and with another limit.
fn on_a_dry_run(course: &mut Course<'_>, name: &str) {
    let respond = Http::empty().headers(Headers::None).outcome(false);
    let layer = || {
        RateLimitLayer::new(rule(MANY))
            .key(PeerIp::new())
            .respond(respond.clone())
    };
    let another = || Limit::new(rule(MANY)).named("next").key(PeerIp::new());
    let plain = Expected::admitted(&[]);
    let alone = vec![
        course.contender("tollgate on a dry run", layer().dry_run(), plain),
        course.contender("tollgate", layer(), plain),
    ];
    course.race(name, Inner::Keeps, alone, &[("tollgate", "≤ 1.1")]);
    let beside = vec![
        course.contender(
            "with a candidate",
            layer().candidate("next", rule(MANY)),
            plain,
        ),
        course.contender("with two limits", layer().also(another()), plain),
        course.contender("with one limit", layer(), plain),
    ];
    let name = format!("{name}, candidate");
    course.race(&name, Inner::Keeps, beside, &[("with two limits", "≤ 1.1")]);
}

fn admitted_with_headers(course: &mut Course<'_>, name: &str) {
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
    let draft = Expected::admitted(&["ratelimit", "ratelimit-policy"]);
    let legacy = Expected::admitted(&["x-ratelimit-limit", "x-ratelimit-remaining"]);
    let contenders = vec![
        course.contender("tollgate", ours, draft),
        course.contender("tower_governor", governor, legacy),
        course.contender("rate-net", rate_net, draft),
        course.contender("tollgate without the outcome in extensions", untold, draft),
    ];
    course.race(
        name,
        Inner::Keeps,
        contenders,
        &[("tower_governor", "≤ 0.5")],
    );
}

/// A limit of calls in flight beside a token bucket: the call holds, and gives back when its body is
/// dropped.
fn in_flight(course: &mut Course<'_>, name: &str) {
    type Targets = &'static [(&'static str, &'static str)];
    const WITHOUT: Targets = &[("a token bucket", "≤ 2.5")];
    const WITH: Targets = &[("a token bucket", "≤ 1.3")];
    let (none, draft) = (Headers::None, Headers::Draft);
    let calls = InFlight::at_most(8);
    let bounded = calls.max_hold(Duration::from_secs(600));
    let races: [(_, _, _, _, Targets); 4] = [
        ("no headers, no outcome", calls, none, false, &[]),
        ("no headers", calls, none, true, WITHOUT),
        ("headers", calls, draft, true, WITH),
        ("headers, a maximal hold", bounded, draft, true, &[]),
    ];
    for (what, calls, headers, outcome, targets) in races {
        let expected = Expected::admitted(match headers {
            Headers::None => &[],
            _ => &["ratelimit", "ratelimit-policy"],
        });
        // One for each, as clones share the fields that they have written.
        let respond = || Http::empty().headers(headers).outcome(outcome);
        let calls = RateLimitLayer::new(calls)
            .key(PeerIp::new())
            .respond(respond());
        let bucket = RateLimitLayer::new(rule(MANY))
            .key(PeerIp::new())
            .respond(respond());
        let contenders = vec![
            course.contender("calls in flight", calls, expected),
            course.contender("a token bucket", bucket, expected),
        ];
        course.race(
            &format!("{name}, {what}"),
            Inner::Keeps,
            contenders,
            targets,
        );
    }
}

/// Lists of boxed limits beside the same limits as types.
fn lists(course: &mut Course<'_>, name: &str) {
    let limit = |name| Limit::new(rule(MANY)).named(name).key(PeerIp::new());
    let list = |names: &[&'static str]| {
        let limits = names.iter().map(|name| limit(name).boxed());
        let limits: Vec<BoxLimit<Request<Body>, TokenBucket>> = limits.collect();
        RateLimitLayer::list(limits).unwrap()
    };
    let typed = || RateLimitLayer::from(limit("one"));
    let three = || typed().also(limit("two")).also(limit("three"));
    let names = ["one", "two", "three"];
    let silent = || Http::empty().headers(Headers::None).outcome(false);
    let fields = || Http::empty().headers(Headers::Draft);
    let (plain, draft) = (
        Expected::admitted(&[]),
        Expected::admitted(&["ratelimit", "ratelimit-policy"]),
    );

    let one = vec![
        course.contender("a list of one", list(&names[..1]).respond(silent()), plain),
        course.contender("one", typed().respond(silent()), plain),
    ];
    course.race(name, Inner::Keeps, one, &[("one", "≤ 1.5")]);
    let one = vec![
        course.contender("a list of one", list(&names[..1]).respond(fields()), draft),
        course.contender("one", typed().respond(fields()), draft),
    ];
    let with_headers = format!("{name}, headers");
    course.race(&with_headers, Inner::Keeps, one, &[("one", "≤ 1.2")]);
    let several = vec![
        course.contender("a list of three", list(&names).respond(silent()), plain),
        course.contender("three", three().respond(silent()), plain),
    ];
    let name = format!("{name}, three");
    course.race(&name, Inner::Keeps, several, &[("three", "≤ 1.1")]);
}

/// A file of a thousand routes beside the same limits in code.
fn routes(course: &mut Course<'_>, name: &str) {
    let any = AnyRule::from(rule(MANY));
    let mut text = format!(
        "[limits]\none = {{ rule = \"{any}\", key = \"peer-ip\" }}\ntwo = {{ rule = \"{any}\", key = \"peer-ip\" }}\n"
    );
    for route in 0..1_000 {
        let target = match route {
            500 => "/v1/users/{id}/orders".to_owned(),
            other => format!("/v1/resource{other}/{{id}}"),
        };
        text += &format!("[[routes]]\nmatch = \"{target}\"\nlimits = [\"one\", \"two\"]\n");
    }
    text += "[default]\nlimits = [\"one\"]\n";
    let limit = |name| Limit::new(any.clone()).named(name).key(PeerIp::new());
    let fields = || Http::empty().headers(Headers::Draft);
    let draft = Expected::admitted(&["ratelimit", "ratelimit-policy"]);
    let file = RouteLimits::builder().respond(fields()).build(&text);
    let code = || RateLimitLayer::from(limit("one"));
    let two = vec![
        course.contender("a file of 1,000 routes", file.unwrap(), draft),
        course.contender(
            "two limits in code",
            code().also(limit("two")).respond(fields()),
            draft,
        ),
    ];
    course.race(name, Inner::Keeps, two, &[("two limits in code", "≤ 1.5")]);
}

/// The fields of a refusal of `rate-net`, whose body is empty.
const RATE_NET: &[&str] = &[
    "retry-after",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
];

fn refused_without_body(course: &mut Course<'_>, name: &str) {
    let ours = RateLimitLayer::new(rule(1))
        .key(PeerIp::new())
        .respond(Http::empty().headers(Headers::Draft));
    let draft = Expected::refused(&["retry-after", "ratelimit", "ratelimit-policy"]);
    let theirs = rate_net(1).with_policy("default");
    let contenders = vec![
        course.contender("tollgate", ours, draft),
        course.contender("rate-net", rate_net(1), Expected::refused(RATE_NET)),
        course.contender("rate-net, draft headers too", theirs, draft),
    ];
    course.race(name, Inner::Drops, contenders, &[("rate-net", "≤ 0.5")]);
}

/// A problem document of ours, the text of `tower_governor`, and the empty body of `rate-net`,
/// which has no other.
fn refused_with_body(course: &mut Course<'_>, name: &str) {
    let ours = RateLimitLayer::new(rule(1))
        .key(PeerIp::new())
        .respond(Http::new().headers(Headers::Draft));
    let governor = governor!(1, use_headers);
    let draft = Expected::refused(&[
        "retry-after",
        "ratelimit",
        "ratelimit-policy",
        "content-type",
    ]);
    let legacy = Expected::refused(&["retry-after", "x-ratelimit-limit", "x-ratelimit-remaining"]);
    let contenders = vec![
        course.contender("tollgate", ours, draft),
        course.contender("tower_governor", governor, legacy),
        course.contender("rate-net", rate_net(1), Expected::refused(RATE_NET)),
    ];
    course.race(name, Inner::Drops, contenders, &[]);
}

fn main() {
    let mode = &Mode::from_args();
    let rounds = mode.rounds(ROUNDS);
    let mut table = Table::new(Reads::TimeAboveBare);
    type Races = fn(&mut Course<'_>, &str);
    let races: [(_, Races); 8] = [
        ("admitted, no headers", admitted_without_headers),
        ("admitted, headers", admitted_with_headers),
        ("admitted, dry run", on_a_dry_run),
        ("admitted, in flight", in_flight),
        ("admitted, lists", lists),
        ("admitted, two limits of a route, headers", routes),
        ("refused, headers, no body", refused_without_body),
        ("refused, headers, body", refused_with_body),
    ];
    for count in [256, 100_000] {
        let mut clients: Vec<SocketAddr> = (0..mode.pick(count, BATCH as u32))
            .map(|n| (IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n)), 4711).into())
            .collect();
        Random::new(3).shuffle(&mut clients);
        let mut course = Course {
            mode,
            rounds,
            clients: &clients,
            table: &mut table,
        };
        for (name, race) in races {
            let name = format!("{name}, {count} peers");
            if mode.runs(&name) {
                race(&mut course, &name);
            }
        }
    }
    table.print(mode, rounds);
}
