//! Heap allocations of a request whose key is known.
//!
//! Allocations are counted by thread, so tests can run in parallel.

#[allow(dead_code)]
use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use support::counting::allocations;
use tollgate::{
    AnyRule, Cost, Decision, Policy, RateLimitLayer, Timestamp, TokenBucket, Verdict,
    key::{Header, Key, KeyExtractorExt, MissingKey, PeerIp},
    observe::{Event, EventCounters, Observer},
    respond::{Headers, Http},
    store::{Local, driver::Ask},
};
use tower::{Layer, Service};

/// Returns a rule that admits `burst` requests of a key, and no more during a test.
fn rule(burst: u64) -> TokenBucket {
    TokenBucket::per_hour(1).burst(burst)
}

fn decisions_allocate_nothing(key: impl Fn() -> Key, burst: u64) {
    let (policy, rule, store) = (Policy::new("test"), rule(burst), Local::new());
    let decide = || {
        store
            .decide(&Ask::new(&policy, &rule, key(), Cost::ONE))
            .is_admitted()
    };
    assert!(decide());
    let (count, admitted) = allocations(|| (1..100).filter(|_| decide()).count());
    assert_eq!(admitted as u64, burst.min(100) - 1);
    assert_eq!(count, 0);
}

#[test]
fn a_decision_on_a_known_address() {
    for burst in [1, 100] {
        decisions_allocate_nothing(|| IpAddr::from([192, 0, 2, 1]).into(), burst);
        decisions_allocate_nothing(
            || IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]).into(),
            burst,
        );
    }
}

#[test]
fn a_decision_on_a_known_string() {
    for length in [0, 24, 40, 41, 4096] {
        let text = "k".repeat(length);
        for burst in [1, 100] {
            decisions_allocate_nothing(|| text.as_str().into(), burst);
        }
    }
}

#[test]
fn a_decision_on_joined_keys_of_a_few_bytes() {
    decisions_allocate_nothing(|| Key::join(["tenant-7", "alice"]), 100);
}

#[test]
fn a_decision_on_a_known_key_by_any_algorithm() {
    for rule in [
        "token-bucket 7/1h burst=50",
        "token-bucket 7/1h burst=50 initial=60",
        "leaky-bucket 7/1h queue=49",
        "fixed-window 50/1d",
        "fixed-window 50/1d offset=spread",
        "fixed-window 50/1d from=first-call",
        "sliding-window 50/1d",
        "sliding-window 50/1d slices=4",
        "sliding-window 50/1d slices=60",
        "warm-up 150/1s over=1h",
        "warm-up-spaced 7/1h over=300d max-wait=10h",
        "cascade 7/1h burst=25 > 3/1h burst=25",
        "cascade 7/1h burst=20 > 3/1h burst=20 > 1/1h burst=10",
        "three-color 7/1h burst=25 peak=9/1h peak-burst=50",
        "fixed-window 50/1d & token-bucket 7/1h burst=60 & sliding-window 70/1h slices=4",
    ] {
        let (policy, store) = (Policy::new("test"), Local::new());
        let any: AnyRule = rule.parse().unwrap();
        let decide = || {
            let ask = Ask::new(&policy, &any, "known".into(), Cost::ONE);
            store.decide(&ask).is_admitted()
        };
        assert!(decide());
        let (count, admitted) = allocations(|| (0..100).filter(|_| decide()).count());
        assert!((5..95).contains(&admitted), "{rule}: {admitted} admitted");
        assert_eq!(count, 0, "{rule}");
    }
}

/// A sliding log allocates only when it grows.
#[test]
fn a_decision_by_a_log() {
    let (policy, store) = (Policy::new("test"), Local::new());
    let rule: AnyRule = "sliding-log 1000/1d".parse().unwrap();
    let decide = || {
        let ask = Ask::new(&policy, &rule, "known".into(), Cost::ONE);
        store.decide(&ask).is_admitted()
    };
    // The first call creates the table of the store.
    assert!(decide());
    let (count, admitted) = allocations(|| (0..2000).filter(|_| decide()).count());
    assert_eq!(admitted, 999);
    assert!(count <= 12, "{count} allocations for a log that doubles");
    let (count, admitted) = allocations(|| (0..100).filter(|_| decide()).count());
    assert_eq!((count, admitted), (0, 0));
}

/// Answers at once and does not allocate.
#[derive(Clone)]
struct Inner;

impl Service<Request<()>> for Inner {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(())))
    }
}

fn request() -> Request<()> {
    let mut request = Request::new(());
    request
        .extensions_mut()
        .insert(SocketAddr::from((Ipv4Addr::LOCALHOST, 4711)));
    request
}

/// Returns the allocations of each of ten requests on a known key, which must be equal, and the
/// last answer.
fn allocations_of_a_request<B>(
    mut service: impl Service<Request<()>, Response = Response<B>>,
) -> (u64, Response<B>) {
    let mut answer = |request| {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(service.poll_ready(&mut cx).is_ready());
        match service.call(request).now_or_never() {
            Some(Ok(response)) => response,
            _ => panic!("the service is ready at once, and cannot fail"),
        }
    };
    assert_eq!(answer(request()).status(), StatusCode::OK);
    // The first answer of each kind keeps texts for those that follow.
    drop(answer(request()));
    let counts: Vec<(u64, Response<B>)> = (0..10)
        .map(|_| {
            let request = request();
            allocations(|| answer(request))
        })
        .collect();
    assert!(
        counts.iter().all(|(count, _)| *count == counts[0].0),
        "not alike"
    );
    counts.into_iter().next_back().expect("ten of them")
}

/// Returns the allocations of a map with this many headers whose names and values do not allocate.
fn allocations_of_the_map(headers: usize) -> u64 {
    let names = [
        "ratelimit",
        "ratelimit-policy",
        "retry-after",
        "cache-control",
        "another",
    ];
    allocations(|| {
        let mut map = HeaderMap::new();
        for name in &names[..headers] {
            map.insert(HeaderName::from_static(name), HeaderValue::from_static("1"));
        }
        map
    })
    .0
}

#[test]
fn an_admitted_request_without_headers_and_without_its_outcome() {
    let respond = Http::empty().headers(Headers::None).outcome(false);
    let layer = RateLimitLayer::new(rule(100))
        .key(PeerIp::new())
        .respond(respond);
    let (count, response) = allocations_of_a_request(layer.layer(Inner));
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.headers().is_empty());
    assert_eq!(count, 0);
}

/// The outcome is in a box in the request's extensions.
#[test]
fn an_admitted_or_exempt_request_without_headers() {
    let respond = || Http::empty().headers(Headers::None);
    let layer = RateLimitLayer::new(rule(100))
        .key(PeerIp::new())
        .respond(respond());
    assert_eq!(allocations_of_a_request(layer.layer(Inner)).0, 1);

    let exempt = |respond| {
        let layer = RateLimitLayer::new(rule(1))
            .key(Header::new("x-api-key").or_exempt())
            .respond(respond);
        allocations_of_a_request(layer.layer(Inner)).0
    };
    assert_eq!(exempt(respond()), 1);
    assert_eq!(exempt(respond().outcome(false)), 0);
}

#[test]
fn an_admitted_request_with_headers() {
    let respond = Http::empty().headers(Headers::Draft);
    let layer = RateLimitLayer::new(rule(100))
        .key(PeerIp::new())
        .respond(respond);
    let (count, response) = allocations_of_a_request(layer.layer(Inner));
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.headers().contains_key("ratelimit"));
    let map = allocations_of_the_map(response.headers().len());
    assert!(
        count <= map + 1,
        "{count} allocations, {map} of them the map's"
    );
}

/// Charges that a response settles are kept in a box. A handle is one more, in the request's
/// extensions. A condition gives a charge back by lists of one settlement.
#[test]
fn charges_that_may_be_settled() {
    let respond = || Http::empty().headers(Headers::Draft);
    let layer = || {
        RateLimitLayer::new(rule(100))
            .key(PeerIp::new())
            .respond(respond())
    };
    let plain = allocations_of_a_request(layer().layer(Inner)).0;
    let count = |layer: &dyn Fn() -> u64| layer() - plain;
    assert_eq!(
        count(&|| allocations_of_a_request(layer().charge_handle().layer(Inner)).0),
        2
    );
    // Without fields, whose values share blocks of memory.
    let silent = || layer().respond(Http::empty().headers(Headers::None));
    let without_fields = allocations_of_a_request(silent().layer(Inner)).0;
    for (charged, most) in [(true, 1), (false, 3)] {
        let limited = silent().charge_if(move |_: &Response<_>| charged);
        let count = allocations_of_a_request(limited.layer(Inner)).0;
        assert!(
            count - without_fields <= most,
            "{count}, charged: {charged}"
        );
    }
    let late = layer().charge_after(|_: &Response<_>| true);
    assert_eq!(count(&|| allocations_of_a_request(late.layer(Inner)).0), 1);
    let dry = allocations_of_a_request(layer().dry_run().layer(Inner)).0;
    assert!(dry <= plain, "{dry} allocations on a dry run");
}

/// A delayed request is boxed once, together with its timer.
#[cfg(feature = "tokio")]
#[test]
fn a_delayed_request() {
    let respond = Http::empty().headers(Headers::None).outcome(false);
    let rule = tollgate::LeakyBucket::per_hour(1).queue(100);
    let layer = RateLimitLayer::new(rule)
        .key(PeerIp::new())
        .respond(respond);
    let mut service = layer.layer(Inner);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _runtime = runtime.enter();
    let mut cx = Context::from_waker(Waker::noop());
    let first = service.call(request()).now_or_never();
    assert_eq!(first.unwrap().unwrap().status(), StatusCode::OK);
    for _ in 0..10 {
        assert!(service.poll_ready(&mut cx).is_ready());
        let request = request();
        let (count, mut response) = allocations(|| service.call(request));
        assert_eq!(count, 1);
        let (count, polled) = allocations(|| response.poll_unpin(&mut cx));
        assert!(polled.is_pending());
        assert_eq!(count, 0);
    }
    assert_eq!(layer.cancelled(), 10);
}

/// A future that does not wait contains only the inner future, the annotation, and a pointer to
/// what its response settles.
#[test]
fn the_future_of_a_response_is_small() {
    let respond = Http::empty().headers(Headers::None).outcome(false);
    let mut service = RateLimitLayer::new(rule(1)).respond(respond).layer(Inner);
    let respond = Http::empty().headers(Headers::Draft);
    let mut marking = RateLimitLayer::new(rule(1)).respond(respond).layer(Inner);
    let inner = size_of::<<Inner as Service<Request<()>>>::Future>();
    let sizes = [
        size_of_val(&service.call(request())),
        size_of_val(&marking.call(request())),
    ];
    // A word of it is the permit of a call in flight.
    assert!(sizes.iter().all(|size| *size <= inner + 64), "{sizes:?}");
}

/// Answers with a body as axum's services do, without an allocation.
#[derive(Clone)]
struct WithBody;

impl Service<Request<()>> for WithBody {
    type Response = Response<axum::body::Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(axum::body::Body::empty())))
    }
}

/// The outcome, the text of the body, and the box in which axum keeps each body.
#[test]
fn a_refusal_with_headers_and_a_problem_document() {
    let layer = RateLimitLayer::new(rule(1)).key(PeerIp::new());
    let (count, response) = allocations_of_a_request(layer.layer(WithBody));
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    assert!(response.headers().contains_key("ratelimit"));
    // `request` makes no headers: a server's has a map already.
    let map = allocations_of_the_map(response.headers().len());
    assert!(
        count <= map + 2,
        "{count} allocations, {map} of them the map's"
    );
}

#[test]
fn a_refusal_with_headers_and_an_empty_body() {
    let respond = Http::empty().headers(Headers::Draft);
    let layer = RateLimitLayer::new(rule(1))
        .key(PeerIp::new())
        .respond(respond);
    let (count, response) = allocations_of_a_request(layer.layer(Inner));
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(response.headers().contains_key("retry-after"));
    assert!(count <= 3, "{count} allocations");
}

/// Returns the number of allocations of events that an observer has seen before, with or without
/// delays.
fn allocations_of_events(observer: &impl Observer, delays: bool) -> u64 {
    let (key, missing) = (Key::from("alice"), MissingKey::new("none"));
    let decisions = [
        Verdict::Allow,
        Verdict::Delay(Duration::from_secs(1)),
        Verdict::Refuse,
        Verdict::Undecided { admitted: true },
        Verdict::Undecided { admitted: false },
    ]
    .map(|verdict| Decision::new(verdict, Timestamp::from_nanos(1 << 60), 1));
    let policies: Vec<_> = (0..70)
        .map(|number| Policy::new(&format!("policy {number}")))
        .collect();
    let report = || {
        for policy in &policies {
            let [allow, delay, refuse, open, closed] = decisions
                .each_ref()
                .map(|decision| Event::new(policy, &key, decision));
            observer.admitted(&allow);
            if delays {
                observer.delayed(&delay, Duration::from_secs(1));
            }
            observer.refused(&refuse);
            observer.undecided(&open);
            observer.undecided(&closed);
            observer.dry_run(&refuse);
            observer.settled(policy, &key, 2, 1);
        }
        observer.exempt();
        observer.missing_key(&missing);
    };
    report();
    allocations(report).0
}

#[test]
fn an_event_that_is_counted() {
    assert_eq!(allocations_of_events(&EventCounters::new(), true), 0);
}

/// The first of a policy registers its metrics; later ones, and those of policies beyond the
/// capacity, allocate nothing. The histogram of a delay is found anew each time, so that an exporter
/// that drops what is idle loses none.
#[cfg(feature = "metrics")]
#[test]
fn an_event_with_metrics() {
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, || {
        let metrics = tollgate::observe::Metrics::with_capacity(64);
        assert_eq!(allocations_of_events(&metrics, false), 0);
    });
}

/// A log that nobody reads computes no text.
#[cfg(feature = "tracing")]
#[test]
fn an_event_that_is_not_logged() {
    let log = tollgate::observe::RefusalLog::new();
    assert_eq!(allocations_of_events(&log, true), 0);
}
