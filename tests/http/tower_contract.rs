//! The contract of tower: the ready instance is used or dropped, clones share a budget, a waiting
//! call holds no capacity, and a dropped future costs what the documentation states.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use crate::common::custom::{Call, InWords, PerSecond, Remote};
use tollgate::{
    Cost, Limit, RateLimitLayer, TokenBucket,
    key::{Key, MissingKey},
    store::{LocalBuilder, StoreExt},
    time::TokioClock,
};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit};
use tower_test::{assert_request_eq, mock};

/// Panics when it is called without being ready. A clone of a ready instance is not ready.
#[derive(Debug)]
struct Strict {
    ready: bool,
    calls: Arc<AtomicU64>,
}

impl Strict {
    fn new() -> Self {
        Self {
            ready: false,
            calls: Arc::default(),
        }
    }
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self {
            ready: false,
            calls: self.calls.clone(),
        }
    }
}

impl Service<Call> for Strict {
    type Response = String;
    type Error = Infallible;
    type Future = std::future::Ready<Result<String, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Call) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called without being ready"
        );
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        std::future::ready(Ok(format!("call {call}")))
    }
}

fn by_key(call: &Call) -> Option<Key> {
    call.key.map(Key::from)
}

async fn send<S>(service: &mut S, call: Call) -> String
where
    S: Service<Call, Response = String, Error: std::fmt::Debug>,
{
    service.ready().await.unwrap().call(call).await.unwrap()
}

#[tokio::test]
async fn clones_and_services_of_one_layer_share_a_budget() {
    let layer = RateLimitLayer::new(TokenBucket::per_day(3)).respond(InWords);
    let mut first = layer.layer(Strict::new());
    let mut clone = first.clone();
    let mut second = layer.clone().layer(Strict::new());
    assert_eq!(send(&mut first, Call::default()).await, "call 1, 2 left");
    assert_eq!(send(&mut clone, Call::default()).await, "call 2, 1 left");
    assert_eq!(send(&mut second, Call::default()).await, "call 1, 0 left");
    for service in [&mut first, &mut clone, &mut second] {
        assert!(send(service, Call::default()).await.starts_with("refused"));
    }
}

#[tokio::test]
async fn a_refusal_releases_the_capacity_of_the_ready_instance() {
    let layer = RateLimitLayer::new(TokenBucket::per_day(1)).respond(InWords);
    let mut service = layer.layer(ConcurrencyLimit::new(Strict::new(), 1));
    let mut other = service.clone();
    assert_eq!(send(&mut service, Call::default()).await, "call 1, 0 left");
    assert!(
        send(&mut service, Call::default())
            .await
            .starts_with("refused")
    );
    // The only permit must be free again, although `service` still exists.
    tokio::time::timeout(Duration::from_secs(10), other.ready())
        .await
        .expect("a permit")
        .unwrap();
    drop(service);
}

#[tokio::test]
async fn a_missing_key_is_refused_and_an_exempt_request_passes() {
    let keyed = |call: &Call| match call.key {
        Some("health") => Ok(tollgate::key::Extracted::Exempt),
        Some(key) => Ok(Key::from(key).into()),
        None => Err(MissingKey::new("no key in the call")),
    };
    let store: tollgate::store::Local<TokenBucket> = LocalBuilder::new().build();
    let mut service = RateLimitLayer::new(TokenBucket::per_day(1))
        .key(keyed)
        .store(store.clone())
        .respond(InWords)
        .layer(ConcurrencyLimit::new(Strict::new(), 1));
    assert_eq!(
        send(&mut service, Call::default()).await,
        "no key: no key in the call"
    );
    // It has an outcome (`tests/http/axum.rs`), and its response is not annotated.
    assert_eq!(send(&mut service, Call::of("health")).await, "call 1");
    assert_eq!(store.len(), 0);
    assert_eq!(
        send(&mut service, Call::of("alice")).await,
        "call 2, 0 left"
    );
    assert!(
        send(&mut service, Call::of("alice"))
            .await
            .starts_with("refused")
    );
    assert_eq!(send(&mut service, Call::of("bob")).await, "call 3, 0 left");
}

#[tokio::test]
async fn a_rule_and_a_cost_per_request() {
    let plan = |call: &Call| (call.key == Some("gold")).then(|| TokenBucket::per_day(100));
    let mut service = RateLimitLayer::new(TokenBucket::per_day(10))
        .key(by_key)
        .rule(plan)
        .cost(|call: &Call| Cost::new(call.cost).unwrap_or(Cost::ONE))
        .respond(InWords)
        .layer(Strict::new());
    let call = |key, cost| Call {
        cost,
        ..Call::of(key)
    };
    assert_eq!(
        send(&mut service, call("gold", 30)).await,
        "call 1, 70 left"
    );
    assert_eq!(send(&mut service, call("iron", 3)).await, "call 2, 7 left");
    assert_eq!(send(&mut service, call("iron", 11)).await, "refused: None");
    assert_eq!(send(&mut service, call("iron", 7)).await, "call 3, 0 left");
}

#[tokio::test]
async fn several_limits_charge_together_or_not_at_all() {
    let total = Limit::new(TokenBucket::per_day(3)).named("total");
    let mut service = RateLimitLayer::new(TokenBucket::per_day(2))
        .key(by_key)
        .named("each")
        .also(total)
        .respond(InWords)
        .layer(Strict::new());
    assert_eq!(send(&mut service, Call::of("a")).await, "call 1, 1 left");
    assert_eq!(send(&mut service, Call::of("a")).await, "call 2, 0 left");
    for _ in 0..5 {
        assert!(
            send(&mut service, Call::of("a"))
                .await
                .starts_with("refused")
        );
    }
    // The refused call of `a` did not charge the total.
    assert_eq!(send(&mut service, Call::of("b")).await, "call 3, 0 left");
    assert!(
        send(&mut service, Call::of("b"))
            .await
            .starts_with("refused")
    );
}

#[test]
#[should_panic(expected = "two limits of one layer are named `default`")]
fn two_limits_of_one_name_panic() {
    let rule = TokenBucket::per_second(1);
    let _ = RateLimitLayer::new(rule).also(Limit::new(rule));
}

#[test]
#[should_panic(expected = "cannot be written in a header")]
fn a_name_that_no_header_can_contain_panics() {
    let _ = RateLimitLayer::new(TokenBucket::per_second(1)).named("größe");
}

#[tokio::test]
async fn readiness_and_errors_of_the_inner_service_pass_through() {
    let (service, mut handle) = mock::pair::<&'static str, &'static str>();
    let layer = RateLimitLayer::new(TokenBucket::per_day(5)).respond(Silent);
    let mut service = mock::Spawn::new(layer.layer(service));
    handle.allow(0);
    assert!(service.poll_ready().is_pending());
    handle.allow(1);
    assert!(service.poll_ready().is_ready());
    let response = service.call("hello");
    assert_request_eq!(handle, "hello").send_response("world");
    assert_eq!(response.await.unwrap(), "world");
    handle.send_error("gone");
    assert!(matches!(service.poll_ready(), Poll::Ready(Err(_))));
}

/// A responder for services whose responses cannot carry a refusal. It must not be called.
#[derive(Clone)]
struct Silent;

impl<Req, Res, Err> tollgate::respond::Respond<Req, Res, Err> for Silent {
    type Annotation = ();

    fn wants_outcome(&self) -> bool {
        false
    }

    fn admit(&self, _: &mut Req, _: tollgate::Outcome) {}

    fn annotate((): (), _: &mut Res) {}

    fn refuse(&self, _: Req, refusal: tollgate::respond::Refusal) -> Result<Res, Err> {
        panic!("{refusal}")
    }
}

#[tokio::test]
async fn a_store_over_a_network_calls_the_instance_that_was_ready() {
    let store = Remote::<TokenBucket>::open();
    let mut service = RateLimitLayer::new(TokenBucket::per_day(1))
        .store(store.clone().fail_closed())
        .respond(InWords)
        .layer(ConcurrencyLimit::new(Strict::new(), 1));
    assert_eq!(send(&mut service, Call::default()).await, "call 1, 0 left");
    assert!(
        send(&mut service, Call::default())
            .await
            .starts_with("refused")
    );
    assert_eq!(store.keys(), 1);
}

#[tokio::test]
async fn an_undecided_call_follows_the_chosen_policy() {
    for (open, expected) in [
        (true, format!("call 1, {} left", u64::MAX)),
        (false, "undecided".into()),
    ] {
        let store = Remote::<TokenBucket>::open();
        store.failing.store(true, Ordering::SeqCst);
        let safe = if open {
            store.clone().fail_open()
        } else {
            store.clone().fail_closed()
        };
        let mut service = RateLimitLayer::new(TokenBucket::per_day(1))
            .store(safe.clone().boxed())
            .respond(InWords)
            .layer(Strict::new());
        assert_eq!(send(&mut service, Call::default()).await, expected);
        assert_eq!(safe.failures(), 1);
        store.failing.store(false, Ordering::SeqCst);
        assert!(
            send(&mut service, Call::default())
                .await
                .ends_with(", 0 left")
        );
        assert_eq!(safe.failures(), 1);
    }
}

/// A request dropped during the call to the store is never passed on, and is charged at most once.
#[tokio::test]
async fn a_call_dropped_during_the_check_is_charged_at_most_once() {
    let store = Remote::<TokenBucket>::shut();
    let inner = Strict::new();
    let mut service = RateLimitLayer::new(TokenBucket::per_day(2))
        .store(store.clone().fail_closed())
        .respond(InWords)
        .layer(ConcurrencyLimit::new(inner.clone(), 1));
    {
        let response = service.ready().await.unwrap().call(Call::default());
        tokio::pin!(response);
        assert!(futures_util::poll!(response.as_mut()).is_pending());
    }
    store.gate.add_permits(100);
    assert_eq!(inner.calls.load(Ordering::SeqCst), 0);
    assert_eq!(send(&mut service, Call::default()).await, "call 1, 1 left");
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_holds_no_capacity_and_is_then_passed_on() {
    let clock = TokioClock::new();
    let mut service = RateLimitLayer::new(PerSecond::waiting(1))
        .store(LocalBuilder::new().clock(clock).build())
        .respond(InWords)
        .layer(ConcurrencyLimit::new(Strict::new(), 1));
    assert_eq!(send(&mut service, Call::default()).await, "call 1, 0 left");
    let begun = tokio::time::Instant::now();
    let mut delayed = Box::pin(service.ready().await.unwrap().call(Call::default()));
    assert!(futures_util::poll!(delayed.as_mut()).is_pending());

    // The only permit is free during the delay.
    let mut other = service.clone();
    tokio::time::timeout(Duration::from_millis(1), other.ready())
        .await
        .expect("a permit")
        .unwrap();
    drop(other);

    assert_eq!(delayed.await.unwrap(), "call 2, 0 left");
    assert!(
        begun.elapsed() > Duration::ZERO
            && begun.elapsed() <= Duration::from_secs(1) + Duration::from_millis(2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_during_its_delay_is_refunded_and_counted() {
    let store = LocalBuilder::new().clock(TokioClock::new()).build();
    let layer = RateLimitLayer::new(PerSecond::waiting(2))
        .store(store.clone())
        .respond(InWords);
    let inner = Strict::new();
    let mut service = layer.layer(inner.clone());
    for _ in 0..2 {
        send(&mut service, Call::default()).await;
    }
    {
        let delayed = service.ready().await.unwrap().call(Call::default());
        tokio::pin!(delayed);
        assert!(futures_util::poll!(delayed.as_mut()).is_pending());
        assert_eq!(layer.cancelled(), 0);
    }
    assert_eq!(layer.cancelled(), 1);
    assert_eq!(inner.calls.load(Ordering::SeqCst), 2);
    // Two calls were charged, not three.
    let tight = PerSecond::new(3);
    let look = store.look(&tollgate::Policy::default(), &tight, &Key::GLOBAL);
    assert_eq!(look.remaining(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_delay_from_a_remote_store_is_waited_for() {
    let store = Remote::<PerSecond>::open();
    let layer = RateLimitLayer::new(PerSecond::waiting(1))
        .store(store.clone().fail_closed())
        .respond(InWords);
    let mut service = layer.layer(ConcurrencyLimit::new(Strict::new(), 1));
    send(&mut service, Call::default()).await;
    let mut delayed = Box::pin(service.ready().await.unwrap().call(Call::default()));
    assert!(futures_util::poll!(delayed.as_mut()).is_pending());
    let mut other = service.clone();
    tokio::time::timeout(Duration::from_millis(1), other.ready())
        .await
        .expect("a permit")
        .unwrap();
    drop(other);
    assert_eq!(delayed.await.unwrap(), "call 2, 0 left");

    let dropped = service.ready().await.unwrap().call(Call::default());
    {
        tokio::pin!(dropped);
        assert!(futures_util::poll!(dropped.as_mut()).is_pending());
    }
    assert_eq!(
        (layer.cancelled(), store.settled.load(Ordering::SeqCst)),
        (1, 1)
    );
}

/// The inner service fails when a delayed request polls its readiness.
#[tokio::test(start_paused = true)]
async fn an_inner_error_after_a_delay_is_returned_and_refunded() {
    #[derive(Clone)]
    struct Failing(Arc<AtomicBool>);
    impl Service<Call> for Failing {
        type Response = String;
        type Error = &'static str;
        type Future = std::future::Ready<Result<String, &'static str>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
            Poll::Ready(if self.0.load(Ordering::SeqCst) {
                Err("gone")
            } else {
                Ok(())
            })
        }
        fn call(&mut self, _: Call) -> Self::Future {
            std::future::ready(Ok("fine".into()))
        }
    }
    let failing = Arc::new(AtomicBool::new(false));
    let store = LocalBuilder::new().clock(TokioClock::new()).build();
    let layer = RateLimitLayer::new(PerSecond::waiting(1))
        .store(store)
        .respond(Silent);
    let mut service = layer.layer(Failing(failing.clone()));
    service
        .ready()
        .await
        .unwrap()
        .call(Call::default())
        .await
        .unwrap();
    let delayed = service.ready().await.unwrap().call(Call::default());
    failing.store(true, Ordering::SeqCst);
    assert_eq!(delayed.await, Err("gone"));
    assert_eq!(layer.cancelled(), 1);
}

#[tokio::test]
async fn the_outcome_reaches_the_inner_service() {
    #[derive(Clone)]
    struct Reader;
    impl Service<Call> for Reader {
        type Response = String;
        type Error = Infallible;
        type Future = std::future::Ready<Result<String, Infallible>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, call: Call) -> Self::Future {
            let outcome = call.outcome.unwrap();
            let names: Vec<_> = outcome
                .iter()
                .map(|(policy, _)| policy.name().to_owned())
                .collect();
            std::future::ready(Ok(format!(
                "{} {:?}",
                names.join("+"),
                outcome.get("b").unwrap().limit()
            )))
        }
    }
    let mut service = RateLimitLayer::new(TokenBucket::per_day(5))
        .named("a")
        .also(Limit::new(TokenBucket::per_day(7)).named("b"))
        .respond(InWords)
        .layer(Reader);
    assert_eq!(
        send(&mut service, Call::default()).await,
        "a+b Some(7), 4 left"
    );
}
