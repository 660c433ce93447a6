//! Calls in flight beside everything else that a layer can do.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::ready,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::body::Body;
use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tollgate::{
    AnyRule, ChargeHandle, Cost, InFlight, Limit, Limiter, LiveRule, Outcome, Permit, Policy,
    RateLimitLayer, TokenBucket,
    key::{Header, Key},
    observe::{Event, Metrics, Observer},
    respond::{Headers, Http},
    store::{AtCapacity, Local, LocalBuilder, StoreExt},
    testing::{Fault, Faulty},
    time::ManualClock,
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use super::{cost, held, key};

const OK: StatusCode = StatusCode::OK;
const REFUSED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

type Reply = Response<Body>;

/// A handler that responds with the status that the request asks for.
fn handler()
-> impl Service<Request<Body>, Response = Reply, Error = Infallible, Future: Send> + Clone {
    service_fn(async |request: Request<Body>| {
        let mut response = Response::new(Body::from("hello"));
        if let Some(status) = request.extensions().get::<StatusCode>() {
            *response.status_mut() = *status;
        }
        Ok(response)
    })
}

/// Asks with a key, and keeps the response.
async fn ask<S>(service: &S, key: &str) -> Reply
where
    S: Service<Request<Body>, Response = Reply, Error = Infallible> + Clone,
{
    ask_for(service, key, OK).await
}

async fn ask_for<S>(service: &S, key: &str, status: StatusCode) -> Reply
where
    S: Service<Request<Body>, Response = Reply, Error = Infallible> + Clone,
{
    let request = Request::builder()
        .header("x-api-key", key)
        .extension(status);
    service
        .clone()
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap()
}

fn statuses(responses: &[Reply]) -> Vec<StatusCode> {
    responses.iter().map(Response::status).collect()
}

fn by_key() -> Header {
    Header::new("x-api-key")
}

#[tokio::test]
async fn a_rule_that_changes_mints_nothing() {
    let (store, rule) = (Local::new(), LiveRule::new(InFlight::at_most(3)));
    let layer = RateLimitLayer::from(Limit::live(&rule))
        .store(store.clone())
        .key(by_key());
    let service = layer.layer(handler());
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(ask(&service, "alice").await);
    }
    rule.set(InFlight::at_most(2)).unwrap();
    assert_eq!(ask(&service, "alice").await.status(), REFUSED);
    drop(open.pop());
    assert_eq!(ask(&service, "alice").await.status(), REFUSED);
    // Calls of the former rule give back under the new one.
    rule.set(InFlight::at_most(2).max_hold(Duration::from_secs(60)))
        .unwrap();
    assert_eq!(held(&store, key("alice")), 2);
    drop(open.pop());
    let timed = ask(&service, "alice").await;
    assert_eq!(timed.status(), OK);
    assert_eq!(ask(&service, "alice").await.status(), REFUSED);
    rule.set(InFlight::at_most(1)).unwrap();
    drop((open, timed));
    assert_eq!(held(&store, key("alice")), 0);
}

/// Permits of a limiter give back once, whichever rule decided.
#[test]
fn a_rule_of_a_limiter_that_changes_mints_nothing() {
    let rule = LiveRule::new(InFlight::at_most(3));
    let limiter = Limiter::live(Policy::new("jobs"), &rule, Local::new());
    let take = || limiter.permit("alice", Cost::ONE).at_once().ok();
    let mut open: Vec<_> = (0..3).map(|_| take().unwrap()).collect();
    rule.set(InFlight::at_most(2)).unwrap();
    assert!(take().is_none());
    open.pop();
    assert!(take().is_none());
    open.pop();
    open.push(take().unwrap());
    assert!(take().is_none());
    rule.set(InFlight::at_most(3)).unwrap();
    open.push(take().unwrap());
    assert!(take().is_none());
    drop(open);
    assert_eq!(limiter.look("alice").at_once().remaining(), Some(3));
}

#[tokio::test]
async fn a_rule_of_the_request_may_count_calls_or_not() {
    let rule = |text: &str| text.parse::<AnyRule>().unwrap();
    let (one, two, rate) = (
        rule("in-flight 1"),
        rule("in-flight 2"),
        rule("token-bucket 1/1h"),
    );
    let plans = move |request: &Request<Body>| {
        Some(match request.headers()["x-api-key"].as_bytes() {
            b"one" => one.clone(),
            b"two" => two.clone(),
            _ => rate.clone(),
        })
    };
    let store = Local::<AnyRule>::new();
    for own in ["token-bucket 9/1h", "in-flight 9"] {
        store.clear();
        let layer = RateLimitLayer::new(rule(own))
            .store(store.clone())
            .key(by_key())
            .rule(plans.clone());
        let service = layer.layer(handler());
        for (key, admitted, again) in [("one", 1, OK), ("two", 2, OK), ("rate", 1, REFUSED)] {
            let mut open = Vec::new();
            for _ in 0..3 {
                open.push(ask(&service, key).await);
            }
            let count = statuses(&open)
                .iter()
                .filter(|status| **status == OK)
                .count();
            assert_eq!(count, admitted, "{key}");
            drop(open);
            assert_eq!(ask(&service, key).await.status(), again, "{key}");
        }
    }
}

#[tokio::test]
async fn a_dry_run_holds_and_refuses_nothing() {
    let store = Local::new();
    let layer = RateLimitLayer::new(InFlight::at_most(1))
        .store(store.clone())
        .key(by_key())
        .dry_run();
    let service = layer.layer(handler());
    let open = [ask(&service, "alice").await, ask(&service, "alice").await];
    assert_eq!(statuses(&open), [OK, OK]);
    assert_eq!(held(&store, key("alice")), 1);
    let report = layer.dry_run_report("default").unwrap();
    assert_eq!(report.refused, 1);
    drop(open);
    assert_eq!(held(&store, key("alice")), 0);
    // Without fields and without an outcome, too.
    let silent = Http::new().headers(Headers::None).outcome(false);
    let service = layer.respond(silent).layer(handler());
    let open = ask(&service, "alice").await;
    assert_eq!(held(&store, key("alice")), 1);
    drop(open);
    assert_eq!(held(&store, key("alice")), 0);
}

/// A dry run charges by itself, also if another limit refuses the request.
#[tokio::test]
async fn a_refused_request_holds_nothing_on_a_dry_run() {
    let store = Local::new();
    let dry = Limit::new(InFlight::at_most(9))
        .named("dry")
        .key(by_key())
        .dry_run();
    let layer = RateLimitLayer::new(InFlight::at_most(1))
        .store(store.clone())
        .key(by_key())
        .also(dry);
    let left = || {
        let look = store.look(&Policy::new("dry"), &InFlight::at_most(9), &key("alice"));
        look.remaining()
    };
    let late = Faulty::new(store.clone());
    late.faults().always(Fault::Late(2));
    async fn check<S>(service: S, left: impl Fn() -> Option<u64>)
    where
        S: Service<Request<Body>, Response = Reply, Error = Infallible> + Clone,
    {
        let open = ask(&service, "alice").await;
        assert_eq!((open.status(), left()), (OK, Some(8)));
        for _ in 0..20 {
            assert_eq!(ask(&service, "alice").await.status(), REFUSED);
            assert_eq!(left(), Some(8));
        }
        drop(open);
        assert_eq!(left(), Some(9));
    }
    check(layer.clone().layer(handler()), left).await;
    check(layer.store(late.fail_open()).layer(handler()), left).await;
}

/// Panics in an observer, when a call begins or ends, keep nothing.
#[test]
fn an_observer_that_panics_holds_nothing() {
    struct Panics(&'static str);
    impl Observer for Panics {
        fn admitted(&self, _: &Event<'_>) {
            assert_ne!(self.0, "admitted");
        }
        fn held(&self, _: &Policy, _: &Key, _: u64) {
            assert_ne!(self.0, "held");
        }
        fn released(&self, _: &Policy, _: &Key, _: u64) {
            assert_ne!(self.0, "released");
        }
    }
    for event in ["admitted", "held", "released"] {
        let store = Local::new();
        let layer = RateLimitLayer::new(InFlight::at_most(1))
            .store(store.clone())
            .key(by_key())
            .observe(Panics(event));
        let service = layer.layer(handler());
        let called = || drop(ask(&service, "alice").now_or_never());
        assert!(catch_unwind(AssertUnwindSafe(called)).is_err(), "{event}");
        assert_eq!(held(&store, key("alice")), 0, "{event}");
    }
}

/// A responder around another one passes the permit on.
#[tokio::test]
async fn responders_that_wrap_others_hold() {
    let store = Local::new();
    let layer = RateLimitLayer::new(InFlight::at_most(1))
        .store(store.clone())
        .key(by_key())
        .respond(Http::new().drain_bodies());
    let service = layer.layer(service_fn(async |mut request: Request<Body>| {
        assert!(Permit::take(request.extensions_mut()).is_some());
        Ok::<_, Infallible>(Response::new(Body::from("hello")))
    }));
    let open = ask(&service, "alice").await;
    assert_eq!((open.status(), held(&store, key("alice"))), (OK, 1));
    assert_eq!(ask(&service, "alice").await.status(), REFUSED);
    drop(open);
    assert_eq!(held(&store, key("alice")), 0);
}

/// With fields and outcomes or without, in each of two layers, a handler gets the permit of both.
#[tokio::test]
async fn a_handler_keeps_what_all_layers_hold_with_any_responder() {
    let settings = [Headers::Draft, Headers::None].map(|headers| {
        let http = Http::new().headers(headers);
        [http.clone(), http.outcome(false)]
    });
    let settings = settings.as_flattened();
    for (outer, inner) in settings
        .iter()
        .flat_map(|a| settings.iter().map(move |b| (a, b)))
    {
        let stores = [Local::new(), Local::new()];
        let layer = |store: &Local<_>, respond: &Http| {
            RateLimitLayer::new(InFlight::at_most(1))
                .store(store.clone())
                .key(by_key())
                .respond(respond.clone())
        };
        let kept = Arc::new(Mutex::new(None));
        let place = Arc::clone(&kept);
        let handler = service_fn(move |mut request: Request<Body>| {
            *place.lock().unwrap() = Permit::take(request.extensions_mut());
            ready(Ok::<_, Infallible>(Response::new(Body::from("hello"))))
        });
        let service = layer(&stores[0], outer).layer(layer(&stores[1], inner).layer(handler));
        drop(ask(&service, "alice").await);
        let held = || stores.each_ref().map(|store| held(store, key("alice")));
        assert_eq!(held(), [1, 1], "{outer:?} {inner:?}");
        assert_eq!(ask(&service, "alice").await.status(), REFUSED);
        kept.lock().unwrap().take();
        assert_eq!(held(), [0, 0], "{outer:?} {inner:?}");
    }
}

#[tokio::test]
async fn a_candidate_is_held_beside_the_live_limit() {
    let store = Local::new();
    let layer = RateLimitLayer::new(InFlight::at_most(2))
        .store(store.clone())
        .key(by_key())
        .candidate("lower", InFlight::at_most(1));
    let service = layer.layer(handler());
    let open = [ask(&service, "alice").await, ask(&service, "alice").await];
    assert_eq!(statuses(&open), [OK, OK]);
    assert_eq!(layer.dry_run_report("lower").unwrap().refused, 1);
    let left = |policy: &str| {
        let look = store.look(&Policy::new(policy), &InFlight::at_most(9), &key("alice"));
        look.remaining()
    };
    assert_eq!((left("default"), left("lower")), (Some(7), Some(8)));
    drop(open);
    assert_eq!((left("default"), left("lower")), (Some(9), Some(9)));
}

/// Conditions on the response do not apply to what a call holds.
#[tokio::test]
async fn conditions_and_handles_settle_nothing_that_is_held() {
    let store = Local::new();
    let limit = || {
        RateLimitLayer::new(InFlight::at_most(2))
            .store(store.clone())
            .key(by_key())
    };
    let failed = |response: &Reply| response.status().is_client_error();
    async fn check<S>(store: &Local<InFlight>, service: S, most: u64)
    where
        S: Service<Request<Body>, Response = Reply, Error = Infallible> + Clone,
    {
        for status in [OK, StatusCode::UNAUTHORIZED] {
            let first = ask_for(&service, "alice", status).await;
            assert_eq!((first.status(), held(store, key("alice"))), (status, most));
            let second = ask_for(&service, "alice", status).await;
            drop(first);
            assert!(held(store, key("alice")) <= most);
            drop(second);
            assert_eq!(held(store, key("alice")), 0);
        }
    }
    check(&store, limit().charge_if(failed).layer(handler()), 1).await;
    // It only looks, and the charge after the response is given back with it.
    check(&store, limit().charge_after(failed).layer(handler()), 0).await;
    let taken = service_fn(async |mut request: Request<Body>| {
        assert!(request.extensions().get::<ChargeHandle>().is_none());
        let permit = Permit::take(request.extensions_mut()).unwrap();
        assert_eq!(permit.units("default"), 1);
        let outcome = request.extensions().get::<Outcome>().unwrap();
        assert!(outcome.take_charge("default").is_err());
        Ok(Response::new(Body::from("hello")))
    });
    let service = limit().charge_handle().layer(taken);
    let open = ask(&service, "alice").await;
    assert_eq!(held(&store, key("alice")), 1);
    drop(open);
    assert_eq!(held(&store, key("alice")), 0);
}

#[tokio::test]
async fn two_layers_hold_each_for_itself() {
    let store = Local::new();
    let layer = |name: &str, most| {
        RateLimitLayer::new(InFlight::at_most(most))
            .named(name)
            .store(store.clone())
            .key(by_key())
    };
    let kept = Arc::new(Mutex::new(None));
    let keeps = Arc::clone(&kept);
    let inner = service_fn(move |mut request: Request<Body>| {
        let permit = Permit::take(request.extensions_mut());
        let permit = permit.inspect(|permit| {
            assert_eq!((permit.units("outer"), permit.units("inner")), (1, 1));
        });
        *keeps.lock().unwrap() = permit;
        async { Ok::<_, Infallible>(Response::new(Body::from("hello"))) }
    });
    let service = ServiceBuilder::new()
        .layer(layer("outer", 3))
        .layer(layer("inner", 2))
        .service(inner);
    let left = || {
        ["outer", "inner"].map(|policy| {
            let (policy, rule) = (Policy::new(policy), InFlight::at_most(9));
            store
                .look(&policy, &rule, &key("alice"))
                .remaining()
                .unwrap()
        })
    };
    let open = ask(&service, "alice").await;
    assert_eq!(left(), [8, 8]);
    drop(open);
    assert_eq!(left(), [8, 8], "the handler goes on");
    kept.lock().unwrap().take();
    assert_eq!(left(), [9, 9]);
}

#[tokio::test]
async fn the_same_layer_twice_gives_back_twice() {
    let store = Local::new();
    let layer = RateLimitLayer::new(InFlight::at_most(2))
        .store(store.clone())
        .key(by_key());
    let service = ServiceBuilder::new()
        .layer(layer.clone())
        .layer(layer.clone())
        .service(handler());
    let open = ask(&service, "alice").await;
    assert_eq!((open.status(), held(&store, key("alice"))), (OK, 2));
    assert_eq!(layer.misconfigured(), 1);
    assert_eq!(ask(&service, "alice").await.status(), REFUSED);
    drop(open);
    assert_eq!(held(&store, key("alice")), 0);
}

#[test]
fn metrics_show_what_is_held_and_the_most() {
    for kept in 0..=3 {
        // A snapshot takes the values away.
        let recorder = DebuggingRecorder::new();
        metrics::with_local_recorder(&recorder, || {
            let layer = RateLimitLayer::new(InFlight::at_most(3))
                .key(by_key())
                .observe(Metrics::new());
            let service = layer.layer(handler());
            let ask = |key| ask(&service, key).now_or_never().unwrap();
            let mut open = vec![ask("alice"), ask("alice"), ask("bob")];
            open.truncate(kept);
            let metrics = recorder.snapshotter().snapshot().into_vec().into_iter();
            let gauges = metrics.filter_map(|(key, _, _, value)| match value {
                DebugValue::Gauge(value) => Some((key.key().name().to_owned(), value.0 as usize)),
                _ => None,
            });
            let expected = [
                ("tollgate_held_units", kept),
                ("tollgate_most_held_units", 3),
            ];
            let expected = expected.map(|(name, value)| (name.to_owned(), value));
            assert_eq!(gauges.collect::<BTreeMap<_, _>>(), expected.into());
        });
    }
}

#[tokio::test]
async fn a_reset_keeps_what_is_held() {
    let store = Local::new();
    let layer = RateLimitLayer::new(InFlight::at_most(2))
        .store(store.clone())
        .key(by_key());
    let service = layer.layer(handler());
    let open = [ask(&service, "alice").await, ask(&service, "alice").await];
    let limiter = layer.limiter("default").unwrap();
    limiter.reset(key("alice")).at_once();
    assert_eq!(held(&store, key("alice")), 2);
    assert_eq!(ask(&service, "alice").await.status(), REFUSED);
    drop(open);
    assert_eq!(held(&store, key("alice")), 0);
}

/// A rate beside it that delays: what the call holds is held while it waits.
#[tokio::test(start_paused = true)]
async fn a_delay_holds() {
    let rule = |text: &str| text.parse::<AnyRule>().unwrap();
    let store = LocalBuilder::new()
        .clock(tollgate::time::TokioClock::new())
        .build::<AnyRule>();
    let layer = RateLimitLayer::new(rule("in-flight 2"))
        .store(store)
        .also(Limit::new(rule("leaky-bucket 1/s queue=9")).named("queue"));
    let service = layer.layer(handler());
    let left = || {
        layer
            .limiter("default")
            .unwrap()
            .look(Key::GLOBAL)
            .at_once()
            .remaining()
    };
    drop(ask(&service, "").await);
    assert_eq!(left(), Some(2));
    for cancels in [true, false] {
        let waits = tokio::spawn({
            let service = service.clone();
            async move { ask(&service, "").await }
        });
        tokio::task::yield_now().await;
        assert_eq!(left(), Some(1));
        if cancels {
            waits.abort();
            assert!(waits.await.is_err());
        } else {
            let response = waits.await.unwrap();
            assert_eq!((response.status(), left()), (OK, Some(1)));
        }
        assert_eq!(left(), Some(2));
    }
}

#[tokio::test]
async fn boxed_limits_and_lists_hold() {
    let store = Local::new();
    let limits = [("a", 1), ("b", 2)].map(|(name, most)| {
        Limit::new(InFlight::at_most(most))
            .named(name)
            .key(by_key())
            .boxed()
    });
    let layer = RateLimitLayer::list(limits.into())
        .unwrap()
        .store(store.clone());
    let service = layer.layer(handler());
    let open = [ask(&service, "alice").await, ask(&service, "alice").await];
    assert_eq!(statuses(&open), [OK, REFUSED]);
    drop(open);
    assert_eq!(ask(&service, "alice").await.status(), OK);
}

#[tokio::test]
async fn refusals_block_nobody_unless_asked() {
    let second = Duration::from_secs(1);
    for counts in [false, true] {
        let store = Local::new()
            .with_blocks()
            .block_after(2, second * 3600, second * 60);
        let store = if counts {
            store.count_calls_in_flight()
        } else {
            store
        };
        let layer = RateLimitLayer::new(InFlight::at_most(1))
            .store(store.clone())
            .key(by_key());
        let service = layer.layer(handler());
        let open = ask(&service, "mallory").await;
        for _ in 0..5 {
            assert_eq!(ask(&service, "mallory").await.status(), REFUSED);
        }
        drop(open);
        assert_eq!(store.made(), u64::from(counts));
        let expected = if counts { REFUSED } else { OK };
        assert_eq!(ask(&service, "mallory").await.status(), expected);
    }
}

#[tokio::test]
async fn refusals_are_never_remembered() {
    let store = Local::new().remember_refusals();
    let layer = RateLimitLayer::new(InFlight::at_most(1))
        .store(store)
        .key(by_key());
    let service = layer.layer(handler());
    for _ in 0..3 {
        let open = ask(&service, "alice").await;
        assert_eq!(open.status(), OK);
        assert_eq!(ask(&service, "alice").await.status(), REFUSED);
    }
}

/// A call that a failing store admits holds nothing, and its store is not asked to give back.
#[tokio::test]
async fn failures_leave_nothing_held() {
    let store = Local::new();
    let faulty = Faulty::new(store.clone());
    let faults = faulty.faults();
    let layer = RateLimitLayer::new(InFlight::at_most(1)).key(by_key());
    let service = layer.store(faulty.fail_open()).layer(handler());

    faults.always(Fault::Unavailable);
    let undecided = [ask(&service, "alice").await, ask(&service, "alice").await];
    assert_eq!(statuses(&undecided), [OK, OK]);
    assert_eq!(held(&store, key("alice")), 0);
    faults.none();
    let decided = [ask(&service, "alice").await, ask(&service, "alice").await];
    assert_eq!(statuses(&decided), [OK, REFUSED]);
    drop(undecided);
    assert_eq!(held(&store, key("alice")), 1);
    drop(decided);
    assert_eq!(held(&store, key("alice")), 0);
}

/// A store that answers late: a call holds from its decision on.
#[tokio::test]
async fn late_answers_hold_too() {
    let store = Local::new();
    let faulty = Faulty::new(store.clone());
    faulty.faults().always(Fault::Late(3));
    let layer = RateLimitLayer::new(InFlight::at_most(1)).key(by_key());
    let service = layer.store(faulty.fail_open()).layer(handler());
    for _ in 0..3 {
        let open = [ask(&service, "alice").await, ask(&service, "alice").await];
        assert_eq!(statuses(&open), [OK, REFUSED]);
        assert_eq!(held(&store, key("alice")), 1);
        drop(open);
        assert_eq!(held(&store, key("alice")), 0);
    }
}

#[tokio::test]
async fn a_full_store_evicts_nothing_that_is_held() {
    for (at_capacity, newcomer) in [
        (AtCapacity::InheritDebts, StatusCode::SERVICE_UNAVAILABLE),
        (AtCapacity::RefuseNewcomers, StatusCode::SERVICE_UNAVAILABLE),
        (AtCapacity::AdmitNewcomers, OK),
    ] {
        let store = LocalBuilder::new()
            .capacity(2_000)
            .at_capacity(at_capacity)
            .build();
        let layer = RateLimitLayer::new(InFlight::at_most(1))
            .store(store.clone())
            .key(by_key());
        let service = layer.layer(handler());
        let mut open = Vec::new();
        for n in 0..2_000 {
            open.push(ask(&service, &n.to_string()).await);
            assert_eq!(open[n].status(), OK);
        }
        for n in 2_000..2_100 {
            assert_eq!(ask(&service, &n.to_string()).await.status(), newcomer);
        }
        for n in 0..2_000 {
            assert_eq!(held(&store, key(&n.to_string())), 1);
            assert_eq!(ask(&service, &n.to_string()).await.status(), REFUSED);
        }
        let stats = store.stats();
        assert_eq!(stats.turned_away + stats.let_through, 100);
        open.clear();
        // Keys that hold nothing make room.
        for n in 2_100..2_200 {
            assert_eq!(ask(&service, &n.to_string()).await.status(), OK);
        }
        assert!(store.len() <= 2_000);
    }
}

#[tokio::test]
async fn a_maximal_hold_is_given_back_once() {
    let clock = ManualClock::default();
    let store = LocalBuilder::new().clock(clock.clone()).build();
    let rule = InFlight::at_most(2).max_hold(Duration::from_secs(16));
    let layer = RateLimitLayer::new(rule).store(store.clone()).key(by_key());
    let service = layer.layer(handler());
    let stuck = ask(&service, "alice").await;
    clock.advance(Duration::from_secs(8));
    let second = ask(&service, "alice").await;
    assert_eq!(ask(&service, "alice").await.status(), REFUSED);
    clock.advance(Duration::from_secs(8));
    // The first call goes on, and holds nothing any more.
    let third = ask(&service, "alice").await;
    assert_eq!(third.status(), OK);
    assert_eq!(store.stats().unsettled, 0);
    drop(stuck);
    assert_eq!(store.stats().unsettled, 1);
    assert_eq!(ask(&service, "alice").await.status(), REFUSED);
    drop(second);
    assert_eq!(ask(&service, "alice").await.status(), OK);
    drop(third);
    assert_eq!(store.stats().unsettled, 1);
    // Also if the key was forgotten meanwhile.
    let stuck = ask(&service, "bob").await;
    clock.advance(Duration::from_secs(60));
    store.clear();
    drop(stuck);
    assert_eq!(store.stats().unsettled, 2);
}

/// A maximal hold is reported when it strikes, while the call goes on, and only then.
#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "the task waits in real time")]
async fn a_maximal_hold_is_reported_once_when_it_strikes() {
    #[derive(Clone, Default)]
    struct Outlasted(Arc<AtomicU64>, Arc<AtomicI64>);
    impl Observer for Outlasted {
        fn held(&self, _: &Policy, _: &Key, units: u64) {
            self.1.fetch_add(units as i64, Ordering::SeqCst);
        }
        fn released(&self, _: &Policy, _: &Key, units: u64) {
            self.1.fetch_sub(units as i64, Ordering::SeqCst);
        }
        fn outlasted(&self, policy: &Policy, of: &Key, units: u64) {
            assert_eq!((policy.name(), of), ("exports", &key("alice")));
            self.0.fetch_add(units, Ordering::SeqCst);
        }
    }
    let hold = Duration::from_millis(400);
    for rule in [
        "in-flight 6 max-hold=400ms",
        "in-flight 6 max-hold=400ms lease=100ms",
    ] {
        let recorder = DebuggingRecorder::new();
        let _recorder = metrics::set_default_local_recorder(&recorder);
        let (store, outlasted) = (Local::new(), Outlasted::default());
        let layer = RateLimitLayer::new(rule.parse::<AnyRule>().unwrap())
            .store(store.clone())
            .named("exports")
            .key(by_key())
            .cost(|_: &Request<Body>| cost(2))
            .observe((outlasted.clone(), Metrics::new()));
        let service = layer.layer(handler());
        drop(ask(&service, "alice").await);
        let begun = Instant::now();
        let stuck = ask(&service, "alice").await;
        let count = || outlasted.0.load(Ordering::SeqCst);
        while count() == 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "{rule}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(begun.elapsed() >= hold, "{rule}");
        let limiter = layer.limiter("exports").unwrap();
        while limiter.look(key("alice")).at_once().remaining() != Some(6) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{rule}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // What is over is held no more, and the end of the call gives nothing back.
        assert_eq!(outlasted.1.load(Ordering::SeqCst), 0, "{rule}");
        drop(stuck);
        tokio::time::sleep(hold * 2).await;
        assert_eq!(count(), 2, "{rule}");
        assert_eq!(outlasted.1.load(Ordering::SeqCst), 0, "{rule}");
        let metrics = recorder.snapshotter().snapshot().into_vec();
        let counted = metrics.into_iter().any(|(key, _, _, value)| {
            key.key().name() == "tollgate_outlasted_units_total" && value == DebugValue::Counter(2)
        });
        assert!(counted, "{rule}");
    }
}

#[test]
fn a_limiter_gives_permits() {
    let store = Local::new();
    let limiter = Limiter::new(Policy::default(), InFlight::at_most(3), store.clone());
    let two = limiter.permit("alice", cost(2)).at_once().unwrap();
    let refused = limiter.permit("alice", cost(2)).at_once().unwrap_err();
    assert!(
        refused.is_limit()
            && refused
                .to_string()
                .starts_with("rate limit exceeded: default")
    );
    let oversized = limiter.permit("alice", cost(4)).at_once().unwrap_err();
    assert!(oversized.is_oversized());
    let one = limiter.permit("alice", Cost::ONE).at_once().unwrap();
    let both = [two.clone(), one];
    assert_eq!(
        both.each_ref().map(|permit| permit.units("default")),
        [2, 1]
    );
    assert_eq!(two.units("other"), 0);
    drop(two);
    assert_eq!(held(&store, "alice"), 3);
    // Only the ends of calls give back.
    limiter.grant("alice", 3).at_once();
    assert_eq!(held(&store, "alice"), 3);
    drop(both);
    assert_eq!(held(&store, "alice"), 0);
    // A permit outlives its limiter.
    let permit = limiter.permit("alice", Cost::ONE).at_once().unwrap();
    drop(limiter);
    assert_eq!(held(&store, "alice"), 1);
    drop(permit);
    assert_eq!(held(&store, "alice"), 0);

    let rate = Limiter::new(Policy::default(), TokenBucket::per_hour(1), Local::new());
    drop(rate.permit("alice", Cost::ONE).at_once().unwrap());
    assert!(rate.permit("alice", Cost::ONE).at_once().is_err());
}
