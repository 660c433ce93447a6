//! Leases under a layer: what clients and handlers see.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response, StatusCode};
use support::{Random, counting::bytes_kept};
use tollgate::{
    AnyRule, Cost, Decision, Outcome, Policy, RateLimitLayer, Timestamp, TokenBucket,
    algorithm::Algorithm,
    key::{Global, Key},
    respond::{Headers, Http},
    store::{
        LeaseConfig, Local, LocalBuilder, Store, StoreExt,
        driver::{Ask, Transactional},
    },
    time::ManualClock,
};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneService};

use crate::common::map_store::MapStore;

/// Rules that can be leased.
const RULES: [&str; 5] = [
    "token-bucket 100/1m",
    "fixed-window 100/1m",
    "sliding-window 100/1m slices=4",
    "sliding-log 100/1m",
    "token-bucket 100/1m & sliding-log 500/1h",
];

type Service = BoxCloneService<Request<()>, Response<String>, Infallible>;

/// Returns a node with leases of three seconds, and its store.
macro_rules! leased {
    ($clock:expr) => {
        leased!($clock, MapStore::<AnyRule>::default(), 1)
    };
    ($clock:expr, $states:expr, $seed:expr) => {{
        let config = LeaseConfig::new()
            .duration(Duration::from_secs(3))
            .seed($seed);
        Transactional::with_clock($states, $clock.clone()).leased(config.clock($clock.clone()))
    }};
}

/// A service whose response has the outcome of its request.
fn service<S>(rule: &str, store: S) -> Service
where
    S: Store<AnyRule, Error = Infallible, Answer: Send> + Clone + Send + Sync + 'static,
{
    let rule: AnyRule = rule.parse().unwrap();
    let layer = RateLimitLayer::new(rule).key(Global).store(store);
    let inner = service_fn(async |request: Request<()>| {
        let mut response = Response::new(String::new());
        if let Some(outcome) = request.extensions().get::<Outcome>() {
            response.extensions_mut().insert(outcome.clone());
        }
        Ok::<_, Infallible>(response)
    });
    BoxCloneService::new(layer.layer(inner))
}

async fn call(service: &Service) -> (StatusCode, Option<String>, Option<u64>, Option<Decision>) {
    let response = service.clone().oneshot(Request::new(())).await.unwrap();
    let header = |name| {
        let value = response.headers().get(name)?;
        Some(value.to_str().unwrap().to_owned())
    };
    let wait = header("retry-after").map(|seconds: String| seconds.parse().unwrap());
    let outcome = response.extensions().get::<Outcome>();
    let decision = outcome.map(|outcome| *outcome.iter().next().unwrap().1);
    (
        response.status(),
        header("ratelimit-policy"),
        wait,
        decision,
    )
}

/// Clients sleep until the reset of one limit: until its quota is full, and not until its bucket is
/// like an unused one, also if a node refuses by itself.
#[tokio::test]
async fn a_refusal_by_leases_reports_when_the_quota_is_full() {
    let clock = ManualClock::default();
    clock.advance(Duration::from_secs(1_000_000));
    let rule: AnyRule = "token-bucket 100/1m initial=10".parse().unwrap();
    let layer = RateLimitLayer::new(rule)
        .key(Global)
        .store(leased!(clock).fail_closed())
        .respond(Http::new().headers(Headers::Draft06));
    let inner =
        service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
    let service = BoxCloneService::new(layer.layer(inner));
    let mut resets = Vec::new();
    for _ in 0..50 {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            let reset = response.headers()["ratelimit-reset"].to_str().unwrap();
            resets.push(reset.parse::<u64>().unwrap());
        }
    }
    // Leases hold back some of the first ten.
    assert!((40..50).contains(&resets.len()), "{resets:?}");
    assert!(
        resets.iter().all(|reset| (57..=60).contains(reset)),
        "{resets:?}"
    );
}

/// The store runs a stricter rule, and clients see the one that is written.
#[tokio::test]
async fn headers_show_the_quota_as_it_is_written() {
    for rule in RULES {
        let clock = ManualClock::default();
        let memory: Local<AnyRule, _> = LocalBuilder::new().clock(clock.clone()).build();
        let expected = call(&service(rule, memory)).await.1;
        assert!(expected.is_some());
        let leases = service(rule, leased!(clock).fail_closed());
        let mut seen = [0, 0];
        for _ in 0..300 {
            let (status, policy, _, _) = call(&leases).await;
            assert_eq!(policy, expected, "{rule}: {status}");
            seen[usize::from(status != StatusCode::OK)] += 1;
            clock.advance(Duration::from_millis(100));
        }
        assert!(seen.iter().all(|count| *count > 20), "{rule}: {seen:?}");
    }
}

/// A cost that fits the limit as it is written, and never the stricter rule in the store.
#[tokio::test]
async fn a_cost_that_the_stricter_rule_never_admits_is_oversized() {
    let mut stricter = 0;
    for rule in RULES {
        let (clock, policy) = (ManualClock::default(), Policy::new("api"));
        let store = leased!(clock).fail_closed();
        let parsed: AnyRule = rule.parse().unwrap();
        let written = parsed.look(None, Timestamp::default());
        let mut largest = None;
        for units in [100, 101, 1000].into_iter().chain((1..100).rev()) {
            let ask = Ask::new(&policy, &parsed, units.into(), Cost::new(units).unwrap());
            // The second time, the node knows the key.
            for _ in 0..2 {
                let decision = store.acquire(&[ask]).await.unwrap().as_slice()[0];
                assert_eq!(
                    decision.announced_limit(),
                    written.announced_limit(),
                    "{rule}"
                );
                if decision.is_admitted() {
                    largest = Some(units);
                    break;
                }
                assert!(decision.is_oversized(), "{rule}: {units}, {decision:?}");
                assert!(decision.limit() < Some(units), "{rule}: {decision:?}");
            }
            if largest.is_some() {
                break;
            }
        }
        stricter += u64::from(largest < Some(100));
        assert!(largest > Some(1), "{rule}: {largest:?}");
    }
    // Windows are held as they are written.
    assert!(stricter >= 2, "{stricter}");
}

/// A client that waits as long as it is told is admitted, in whole seconds by HTTP, and to the
/// nanosecond by the store.
#[tokio::test]
async fn a_client_that_waits_as_told_is_admitted() {
    for rule in RULES {
        let clock = ManualClock::default();
        let leases = service(rule, leased!(clock).fail_closed());
        let mut random = Random::new(1);
        for _ in 0..100 {
            let wait = loop {
                let (status, _, wait, _) = call(&leases).await;
                if status != StatusCode::OK {
                    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{rule}");
                    break wait.unwrap();
                }
                clock.advance(Duration::from_millis(random.below(400)));
            };
            clock.advance(Duration::from_secs(wait));
            assert_eq!(call(&leases).await.0, StatusCode::OK, "{rule}: {wait} s");
        }

        let (store, policy) = (leased!(clock), Policy::new("api"));
        let parsed: AnyRule = rule.parse().unwrap();
        for _ in 0..300 {
            let cost = Cost::new(random.below(4) + 1).unwrap();
            let ask = Ask::new(&policy, &parsed, "alice".into(), cost);
            let wait = loop {
                let decision = store.acquire(&[ask]).await.unwrap().as_slice()[0];
                if !decision.is_admitted() {
                    break decision.retry_after().unwrap();
                }
                clock.advance(Duration::from_millis(random.below(400)));
            };
            assert!(!wait.is_zero());
            clock.advance(wait);
            let decisions = store.acquire(&[ask]).await.unwrap();
            assert!(decisions.is_admitted(), "{rule}: {wait:?}");
        }
        let stats = store.stats();
        assert!(stats.admitted > 20, "{rule}: {stats:?}");
    }
}

/// Until the end of a wait, the node that returned it refuses, whatever other nodes do. A
/// nanosecond before the end, one is left. At the end a single node admits; if there are others,
/// they may have spent units since the store's last answer to this one.
#[tokio::test]
async fn a_client_that_comes_a_nanosecond_early_is_refused() {
    const NANOSECOND: Duration = Duration::from_nanos(1);
    for (rule, others) in RULES.into_iter().flat_map(|rule| [(rule, 0), (rule, 1)]) {
        let (clock, states) = (ManualClock::default(), MapStore::default());
        let nodes: Vec<_> = (0..=others)
            .map(|seed| leased!(clock, states.clone(), seed))
            .collect();
        let (policy, parsed) = (Policy::new("api"), rule.parse::<AnyRule>().unwrap());
        let mut random = Random::new(2);
        for _ in 0..300 {
            let cost = Cost::new(random.below(4) + 1).unwrap();
            let ask = Ask::new(&policy, &parsed, "alice".into(), cost);
            let (node, wait) = loop {
                let node = random.choose(&nodes);
                let decision = node.acquire(&[ask]).await.unwrap().as_slice()[0];
                if !decision.is_admitted() {
                    break (node, decision.retry_after().unwrap());
                }
                clock.advance(Duration::from_millis(random.below(400)));
            };
            clock.advance(wait - NANOSECOND);
            let early = node.acquire(&[ask]).await.unwrap().as_slice()[0];
            assert!(!early.is_admitted(), "{rule}, {others}: {wait:?}");
            assert_eq!(early.retry_after(), Some(NANOSECOND), "{rule}, {others}");
            clock.advance(NANOSECOND);
            let decisions = node.acquire(&[ask]).await.unwrap();
            assert!(decisions.is_admitted() || others > 0, "{rule}: {wait:?}");
        }
        for stats in nodes.iter().map(|node| node.stats()) {
            assert!(
                stats.admitted > 0 && stats.refused > 100,
                "{rule}: {stats:?}"
            );
        }
    }
}

/// Handlers can tell an exact number from an estimate.
#[tokio::test]
async fn what_remains_is_marked_as_an_estimate_if_a_lease_paid() {
    for rule in RULES {
        let clock = ManualClock::default();
        let store = leased!(clock);
        let leases = service(rule, store.clone().fail_closed());
        let mut estimated = 0;
        for _ in 0..50 {
            let before = store.stats().admitted;
            let decision = call(&leases).await.3.unwrap();
            let of_lease = store.stats().admitted > before;
            assert!(decision.remaining() <= decision.limit());
            // A unit of a grant that is more than the call needs is one of a lease, too.
            assert!(decision.is_remaining_estimated() || !of_lease, "{rule}");
            estimated += u32::from(of_lease);
        }
        assert!(estimated > 10, "{rule}: {estimated}");
        // The first call of a key is answered by the store.
        let first = service(rule, leased!(clock).fail_closed());
        let decision = call(&first).await.3.unwrap();
        assert!(!decision.is_remaining_estimated());
    }
}

/// A rule of configuration is judged when the layer is built.
#[tokio::test]
async fn a_rule_that_cannot_be_leased_is_an_error_of_the_layer() {
    let clock = ManualClock::default();
    for (rule, part) in [
        ("leaky-bucket 10/s queue=5", "leases of `leaky-bucket 10/s"),
        ("cascade 10/s > 5/s", "leases of `cascade 10/s"),
        (
            "fixed-window 10/1m & warm-up 10/s over=2s",
            "leases of `warm-up 10/s",
        ),
        ("token-bucket 1/s", "with leases of 3s"),
    ] {
        let rule: AnyRule = rule.parse().unwrap();
        let layer = RateLimitLayer::new(rule).try_store(leased!(clock).fail_closed());
        let error = layer.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// Of a limit of 100 units, the hold of three seconds costs a bucket five.
#[test]
fn a_call_lacks_what_the_hold_costs_and_what_other_nodes_hold() {
    let bound = |rule: &str, config: LeaseConfig| {
        let store = Transactional::new(MapStore::<AnyRule>::default());
        let leased = store.leased(config);
        let rule: AnyRule = rule.parse().unwrap();
        leased.undershoot_bound(&rule).unwrap()
    };
    let nodes = |number| {
        let config = LeaseConfig::new().duration(Duration::from_secs(3));
        config.nodes(number)
    };
    for (rule, price, held) in [
        ("token-bucket 100/1m", 5, 23),
        ("fixed-window 100/1m", 0, 25),
        ("sliding-window 100/1m slices=4", 0, 25),
        ("sliding-log 100/1m", 0, 25),
        ("token-bucket 100/1m & sliding-log 500/1h", 5, 23),
    ] {
        assert_eq!(bound(rule, nodes(1)), price, "{rule}");
        assert_eq!(bound(rule, nodes(0)), price, "{rule}");
        assert_eq!(bound(rule, nodes(2)), price + held, "{rule}");
        assert_eq!(bound(rule, nodes(3)), price + 2 * held, "{rule}");
        assert_eq!(bound(rule, nodes(6)), 100, "{rule}");
        assert_eq!(bound(rule, nodes(u64::MAX)), 100, "{rule}");
        // While it is not known how many there are, they may be any number.
        let unknown = LeaseConfig::new().duration(Duration::from_secs(3));
        assert_eq!(bound(rule, unknown), 100, "{rule}");
        let off = LeaseConfig::new().duration(Duration::ZERO).nodes(3);
        assert_eq!(bound(rule, off), 0, "{rule}");
    }
}

/// Returns the bytes that a node keeps for each key because of leases, when each was called so
/// often.
fn bytes_of_a_key(calls: u64) -> i64 {
    // As full as the tables of four times as many.
    const KEYS: u64 = 5_000;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_second(1000));
    // Without leases the node has only the store.
    let [store, both] = [0, 100].map(|hold| {
        let clock = ManualClock::default();
        clock.advance(Duration::from_secs(1000));
        let store = Transactional::with_clock(MapStore::<TokenBucket>::default(), clock.clone());
        let config = LeaseConfig::new().duration(Duration::from_millis(hold));
        let node = store.leased(config.clock(clock).seed(1));
        let call = async |key| {
            let ask = Ask::new(&policy, &rule, Key::from(key), Cost::ONE);
            assert!(node.acquire(&[ask]).await.unwrap().is_admitted());
        };
        let (bytes, ()) = bytes_kept(|| {
            for key in 0..KEYS {
                runtime.block_on(async {
                    for _ in 0..calls {
                        call(key).await;
                    }
                });
            }
        });
        bytes
    });
    (both - store) / KEYS as i64
}

/// The documentation of `LeaseConfig::keys` states these numbers.
#[test]
fn keys_take_as_much_memory_as_is_documented() {
    let [rare, leased] = [1, 3].map(bytes_of_a_key);
    assert!(rare <= 260, "{rare} bytes for a key without leases");
    assert!(leased <= 590, "{leased} bytes for a key with a lease");
}
