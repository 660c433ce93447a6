//! "Look, then charge" in company: other limits and layers, stores that fail, delays, panics, and
//! responses that are dropped late.

use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use tollgate::{
    AnyRule, Cost, Policy, RateLimitLayer, TokenBucket,
    key::{Extracted, Key, MissingKey},
    observe::{Event, Observer},
    prelude::*,
    testing::{Fault, Faulty},
};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

use super::{at_once, cost};

fn always(_: &Response<String>) -> bool {
    true
}

async fn respond(_: Request<()>) -> Result<Response<String>, Infallible> {
    Ok(Response::new("answer".to_owned()))
}

fn left(store: &Local<TokenBucket>, policy: &str, rule: &TokenBucket) -> u64 {
    let look = store.look(&Policy::new(policy), rule, &Key::GLOBAL);
    look.remaining().unwrap()
}

async fn status<S, Req>(service: &S, request: Req) -> StatusCode
where
    S: Service<Req, Response = Response<String>, Error = Infallible> + Clone,
{
    service.clone().oneshot(request).await.unwrap().status()
}

/// Writes down each event as a line.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn write(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

impl Observer for Seen {
    fn admitted(&self, event: &Event<'_>) {
        self.write(format!("admitted {}", event.policy()));
    }

    fn delayed(&self, event: &Event<'_>, _: Duration) {
        self.write(format!("delayed {}", event.policy()));
    }

    fn refused(&self, event: &Event<'_>) {
        self.write(format!("refused {}", event.policy()));
    }

    fn undecided(&self, event: &Event<'_>) {
        self.write(format!("undecided {}", event.policy()));
    }

    fn settled(&self, policy: &Policy, _: &Key, charged: u64, actual: u64) {
        self.write(format!("settled {policy} {charged} {actual}"));
    }
}

#[tokio::test]
async fn stacked_layers_and_two_limits_in_one_layer_each_charge_once() {
    let (store, rule) = (Local::new(), at_once(100));
    let limit = |name| Limit::new(at_once(100)).named(name);
    let layer = |name| {
        RateLimitLayer::new(at_once(100))
            .named(name)
            .store(store.clone())
    };
    let seen = Seen::default();
    let outer = layer("outer").charge_after(always).observe(seen.clone());
    let inner = layer("plain")
        .also(limit("one").cost(cost(2)).charge_after(always))
        .also(
            limit("two")
                .cost(cost(3))
                .charge_after(|_: &Response<String>| false),
        )
        .also(
            limit("three")
                .cost(cost(4))
                .charge_if(|_: &Response<String>| false),
        )
        .observe(seen.clone());
    let service = ServiceBuilder::new()
        .layer(outer)
        .layer(inner)
        .service(service_fn(respond));
    let names = ["outer", "plain", "one", "two", "three"];
    for round in 1..=3 {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let left = names.map(|name| left(&store, name, &rule));
        assert_eq!(left, [100 - round, 100 - round, 100 - 2 * round, 100, 100]);
        let field: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
        for (name, left) in names.iter().zip(left) {
            let member = format!("\"{name}\";r={left}");
            assert!(
                field
                    .iter()
                    .any(|value| value.to_str().unwrap().contains(&member)),
                "{member}: {field:?}"
            );
        }
        let mut events = seen.take();
        events.sort();
        assert_eq!(
            events,
            [
                "admitted one",
                "admitted outer",
                "admitted plain",
                "admitted three",
                "admitted two",
                "settled one 0 2",
                "settled outer 0 1",
                "settled three 4 0",
            ]
        );
    }
}

#[tokio::test]
async fn a_request_that_another_limit_refuses_is_not_charged() {
    for by_look in [false, true] {
        let store = Local::new();
        let rule = at_once(1);
        let seen = Seen::default();
        let plain = RateLimitLayer::new(rule)
            .named("plain")
            .store(store.clone())
            .observe(seen.clone());
        // Either the limit beside it refuses at once, or the look does.
        let units = if by_look { 1 } else { 100 };
        let limit = Limit::new(at_once(units))
            .named("late")
            .charge_after(always);
        let service = ServiceBuilder::new()
            .layer(plain.also(limit))
            .service(service_fn(respond));
        assert_eq!(status(&service, Request::new(())).await, StatusCode::OK);
        if by_look {
            store.reset(&Policy::new("plain"), &Key::GLOBAL);
        }
        let before = (
            left(&store, "plain", &rule),
            left(&store, "late", &at_once(units)),
        );
        seen.take();
        for _ in 0..5 {
            let status = status(&service, Request::new(())).await;
            assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
            let after = (
                left(&store, "plain", &rule),
                left(&store, "late", &at_once(units)),
            );
            assert_eq!(before, after);
            let refused = if by_look {
                "refused late"
            } else {
                "refused plain"
            };
            assert_eq!(seen.take(), [refused]);
        }
    }
}

#[tokio::test]
async fn a_cost_above_the_limit_is_refused_by_the_look() {
    let (store, rule) = (Local::new(), at_once(10));
    let layer = RateLimitLayer::new(rule)
        .store(store.clone())
        .cost(|request: &Request<u64>| Cost::new(*request.body()).unwrap())
        .charge_after(always);
    let inner =
        service_fn(async |_: Request<u64>| Ok::<_, Infallible>(Response::new(String::new())));
    let service = ServiceBuilder::new().layer(layer).service(inner);
    let refused = service.clone().oneshot(Request::new(11)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(refused.headers().get("retry-after"), None);
    assert_eq!(left(&store, "default", &rule), 10);
    for (units, expected, after) in [(7, 200, 3), (4, 429, 3), (3, 200, 0), (1, 429, 0)] {
        let status = status(&service, Request::new(units)).await;
        assert_eq!(
            (status.as_u16(), left(&store, "default", &rule)),
            (expected, after)
        );
    }
}

#[tokio::test]
async fn an_exempt_request_is_neither_looked_at_nor_charged() {
    let (store, rule) = (Local::new(), at_once(1));
    let layer = RateLimitLayer::new(rule)
        .store(store.clone())
        .key(|request: &Request<bool>| -> Result<Extracted, MissingKey> {
            Ok(if *request.body() {
                Extracted::Exempt
            } else {
                Extracted::Key(Key::GLOBAL)
            })
        })
        .charge_after(always);
    let inner =
        service_fn(async |_: Request<bool>| Ok::<_, Infallible>(Response::new(String::new())));
    let service = ServiceBuilder::new().layer(layer).service(inner);
    for (exempt, expected) in [
        (true, 200),
        (true, 200),
        (false, 200),
        (true, 200),
        (false, 429),
    ] {
        assert_eq!(
            status(&service, Request::new(exempt)).await.as_u16(),
            expected
        );
    }
    assert_eq!(left(&store, "default", &rule), 0);
}

#[tokio::test]
async fn a_selected_rule_is_looked_at_and_charged() {
    let (store, selected) = (Local::new(), at_once(500));
    let plan = selected;
    let layer = RateLimitLayer::new(at_once(100))
        .store(store.clone())
        .rule(move |_: &Request<bool>| Some(plan))
        .charge_after(always);
    let inner = service_fn(async |request: Request<bool>| {
        if *request.body() {
            std::future::pending::<()>().await;
        }
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let service = ServiceBuilder::new().layer(layer).service(inner);
    status(&service, Request::new(false)).await;
    assert_eq!(left(&store, "default", &selected), 499);
    let dropped = service.oneshot(Request::new(true)).now_or_never();
    assert!(dropped.is_none());
    assert_eq!(left(&store, "default", &selected), 498);
}

/// Each row: the faults of the look, of the charge, and what becomes of the request under
/// `fail_open` and under `fail_closed`.
#[tokio::test]
async fn a_store_that_fails_at_the_late_charge_decides_as_it_was_told() {
    for (faults, open, closed, charged) in [
        ([None, Some(Fault::Unavailable)], 200, 503, 0),
        ([None, Some(Fault::Contended)], 200, 503, 0),
        // Charged, but the answer is lost.
        ([None, Some(Fault::Lost)], 200, 503, 1),
        ([Some(Fault::Unavailable), None], 200, 503, 0),
        ([Some(Fault::Late(3)), Some(Fault::Late(3))], 200, 200, 1),
    ] {
        for (is_open, expected) in [(true, open), (false, closed)] {
            let (store, rule) = (Local::new(), at_once(10));
            let faulty = Faulty::new(store.clone());
            faulty.faults().script(faults);
            let layer = RateLimitLayer::new(rule);
            let status = if is_open {
                let layer = layer.store(faulty.fail_open()).charge_after(always);
                let service = ServiceBuilder::new()
                    .layer(layer)
                    .service(service_fn(respond));
                status(&service, Request::new(())).await
            } else {
                let layer = layer.store(faulty.fail_closed()).charge_after(always);
                let service = ServiceBuilder::new()
                    .layer(layer)
                    .service(service_fn(respond));
                status(&service, Request::new(())).await
            };
            assert_eq!(status.as_u16(), expected, "{faults:?}");
            // A look that failed open lets the request in, and the store may be there again when it
            // is charged.
            let looked_open = is_open && faults[1].is_none();
            let charged = charged + u64::from(looked_open);
            assert_eq!(10 - left(&store, "default", &rule), charged, "{faults:?}");
        }
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_while_the_store_is_down_is_refused_by_the_fallback() {
    let faulty = Faulty::new(Local::<TokenBucket>::new());
    faulty.faults().always(Fault::Unavailable);
    let store = faulty.fall_back_to(Local::new()).share(1, 1);
    let layer = RateLimitLayer::new(at_once(3))
        .store(store)
        .charge_after(always);
    let service = ServiceBuilder::new()
        .layer(layer)
        .service(service_fn(|_: Request<()>| {
            std::future::pending::<Result<Response<String>, Infallible>>()
        }));
    for _ in 0..3 {
        let response = service.clone().oneshot(Request::new(()));
        assert!(response.now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    assert_eq!(
        status(&service, Request::new(())).await,
        StatusCode::TOO_MANY_REQUESTS
    );
}

/// The client goes away while the store makes the charge after the response.
#[tokio::test]
async fn a_response_that_is_dropped_during_its_charge_is_charged() {
    let (store, rule) = (Local::new(), at_once(10));
    let faulty = Faulty::new(Faulty::new(store.clone()));
    let seen = Seen::default();
    let faults = faulty.faults();
    // Decided when it is released, and polled.
    faults.script([None, Some(Fault::Held)]);
    let layer = RateLimitLayer::new(rule)
        .store(faulty.fail_closed())
        .charge_after(always)
        .observe(seen.clone());
    let service = ServiceBuilder::new()
        .layer(layer)
        .service(service_fn(respond));
    assert!(service.oneshot(Request::new(())).now_or_never().is_none());
    faults.release();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(left(&store, "default", &rule), 9);
    assert_eq!(seen.take(), ["admitted default", "settled default 0 1"]);
}

/// A request that is dropped before its response, or panics, is charged once, by each of its limits
/// that is not exhausted.
#[tokio::test]
async fn requests_without_a_response_charge_each_limit_once() {
    for end in ["drop", "panic", "error", "condition"] {
        let (store, rule) = (Local::new(), at_once(100));
        let seen = Seen::default();
        let condition = move |_: &Response<String>| match end {
            "condition" => resume_unwind(Box::new("the condition panics")),
            _ => true,
        };
        let layer = RateLimitLayer::new(rule)
            .named("one")
            .store(store.clone())
            .cost(cost(2))
            .charge_after(condition)
            .also(
                Limit::new(rule)
                    .named("two")
                    .cost(cost(3))
                    .charge_after(condition),
            )
            .observe(seen.clone());
        let inner = service_fn(move |_: Request<()>| async move {
            match end {
                "drop" => std::future::pending().await,
                "panic" => resume_unwind(Box::new("the handler panics")),
                "error" => Err("failed"),
                _ => Ok(Response::new(String::new())),
            }
        });
        let mut service = ServiceBuilder::new().layer(layer).service(inner);
        let response = AssertUnwindSafe(service.call(Request::new(()))).catch_unwind();
        let mut response = Box::pin(response);
        drop(response.as_mut().now_or_never());
        // A future that has its result may be kept.
        let _kept = (end == "error").then_some(response);
        let left = ["one", "two"].map(|name| left(&store, name, &rule));
        assert_eq!(left, [98, 97], "{end}");
        let settled = seen.take();
        assert_eq!(
            settled,
            [
                "admitted one",
                "admitted two",
                "settled one 0 2",
                "settled two 0 3"
            ],
            "{end}"
        );
    }
}

/// A rule with delays, beside a look: a request that is dropped before its turn is charged by
/// neither.
#[tokio::test(start_paused = true)]
async fn a_delayed_request_that_is_dropped_before_its_turn_is_not_charged() {
    let store: Local<AnyRule> = Local::new();
    let queue: AnyRule = "leaky-bucket 1/1h queue=5".parse().unwrap();
    let late: AnyRule = "token-bucket 1/1d burst=10".parse().unwrap();
    let layer = RateLimitLayer::new(queue.clone())
        .named("queue")
        .store(store.clone())
        .also(Limit::new(late.clone()).named("late").charge_after(always));
    let service = ServiceBuilder::new()
        .layer(layer)
        .service(service_fn(respond));
    let left = |policy: &str, rule| {
        let look = store.look(&Policy::new(policy), rule, &Key::GLOBAL);
        look.remaining().unwrap()
    };
    assert_eq!(status(&service, Request::new(())).await, StatusCode::OK);
    let before = (left("queue", &queue), left("late", &late));
    assert_eq!(before.1, 9);
    assert!(
        service
            .clone()
            .oneshot(Request::new(()))
            .now_or_never()
            .is_none()
    );
    assert_eq!((left("queue", &queue), left("late", &late)), before);
}

/// A rule that would delay is charged without a delay, and refuses when its queue is full.
#[tokio::test]
async fn a_rule_that_delays_counts_its_queue() {
    let rule: AnyRule = "leaky-bucket 1/1h queue=2".parse().unwrap();
    let layer = RateLimitLayer::new(rule).charge_after(always);
    let service = ServiceBuilder::new()
        .layer(layer)
        .service(service_fn(respond));
    for expected in [200, 200, 200, 429, 429] {
        assert_eq!(status(&service, Request::new(())).await.as_u16(), expected);
    }
}
