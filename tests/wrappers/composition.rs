//! All orders of the wrappers, and a layer over the whole stack.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{Request, Response};
use tokio::time::{Instant, advance};
use tollgate::{
    AnyRule, RateLimitLayer, TokenBucket,
    key::Header,
    respond::Http,
    store::{CircuitBreakerConfig, NeverFails, Store, StoreError, StoreExt},
    time::TokioClock,
};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::{
    fakes::{Asked, Bucket, Fault, Kind, Remote, local},
    remember::Closed,
};

const DEADLINE: Duration = Duration::from_millis(50);

fn breaker() -> CircuitBreakerConfig {
    CircuitBreakerConfig::new()
        .failures(2)
        .open_for(Duration::from_secs(1), Duration::from_secs(1))
        .clock(TokioClock::new())
}

/// Checks any order of the three wrappers, before a failure policy is chosen.
async fn fails_and_recovers<S>(name: &str, remote: &Bucket, store: S)
where
    S: Store<TokenBucket, Error = StoreError> + Clone,
{
    let asked = Asked::of(TokenBucket::per_minute(60).burst(2));
    assert_eq!(asked.pass(&store, "a", 3).await, 2, "{name}");
    assert_eq!(asked.look(&store, "a").await.unwrap().remaining(), Some(0));
    let calls = remote.calls().len();
    // Refused without the store.
    assert_eq!(asked.pass(&store, "a", 10).await, 0, "{name}");
    assert_eq!(remote.calls().len(), calls, "{name}");
    remote.usually(Fault::Silent);
    for _ in 0..2 {
        let begun = Instant::now();
        let failed = asked.acquire(&store, "b", 1).await;
        assert!(failed.unwrap_err().is_timeout(), "{name}");
        assert!(begun.elapsed() >= DEADLINE, "{name}");
    }
    assert_eq!(remote.running(), 0);
    remote.usually(Fault::Fails(Kind::Other));
    for _ in 0..2 {
        assert!(asked.acquire(&store, "b", 1).await.is_err(), "{name}");
    }
    // The breaker is open by now, inside or outside of the deadline.
    let calls = remote.calls().len();
    let failed = asked.acquire(&store, "b", 1).await;
    assert!(failed.unwrap_err().is_unavailable(), "{name}");
    assert_eq!(remote.calls().len(), calls, "{name}");
    remote.usually(Fault::None);
    advance(Duration::from_secs(1)).await;
    assert_eq!(asked.pass(&store, "b", 3).await, 2, "{name}");
    assert_eq!(asked.pass(&store, "a", 3).await, 1, "{name}");
    let decision = asked.acquire(&store, "c", 2).await.unwrap();
    let settlement = asked.settlement("c", &decision, 1);
    assert!(store.settle(vec![settlement]).await.is_ok(), "{name}");
    assert_eq!(asked.pass(&store, "c", 3).await, 1, "{name}");
    let key = "c".into();
    assert!(store.reset(&asked.policy, &key).await.is_ok(), "{name}");
    assert_eq!(asked.pass(&store, "c", 3).await, 2, "{name}");
    assert_eq!(remote.running(), 0, "{name}");
}

/// Checks the stack with a failure policy at the end, so that no call fails.
async fn never_fails<S>(name: &str, remote: &Bucket, store: S, passes_while_lost: usize)
where
    S: Store<TokenBucket, Error: NeverFails> + Clone,
    S::Error: std::fmt::Debug,
{
    let asked = Asked::of(TokenBucket::per_minute(60).burst(2));
    assert_eq!(asked.pass(&store, "a", 3).await, 2, "{name}");
    remote.usually(Fault::Silent);
    let mut passed = 0;
    for _ in 0..10 {
        let begun = Instant::now();
        passed += asked.pass(&store, "b", 1).await;
        assert!(begun.elapsed() <= DEADLINE, "{name}");
    }
    assert_eq!(passed, passes_while_lost, "{name}");
    remote.usually(Fault::None);
    advance(Duration::from_secs(2)).await;
    assert_eq!(asked.pass(&store, "a", 3).await, 2, "{name}");
    assert_eq!(asked.pass(&store, "c", 3).await, 2, "{name}");
    assert_eq!(remote.running(), 0, "{name}");
}

/// Runs each order of the three wrappers, alone and with each failure policy.
macro_rules! orders {
    ($($name:literal: $remote:ident => $store:expr),+ $(,)?) => {$(
        let $remote = Bucket::new();
        fails_and_recovers($name, &$remote, $store).await;
        let $remote = Bucket::new();
        never_fails($name, &$remote, $store.fail_closed(), 0).await;
        let $remote = Bucket::new();
        never_fails($name, &$remote, $store.fail_open(), 10).await;
        let $remote = Bucket::new();
        never_fails($name, &$remote, $store.fall_back_to(local()).share(1, 2), 1).await;
        // With its type erased in between, shared, and erased again.
        let $remote = Bucket::new();
        let erased = Arc::new($store.boxed());
        let store = erased.fall_back_to(local().boxed()).share(1, 2).boxed();
        never_fails($name, &$remote, store, 1).await;
    )+};
}

#[tokio::test(start_paused = true)]
async fn all_orders_of_wrappers_compose() {
    let memory = TokioClock::new();
    orders! {
        "timeout, breaker, memory": remote =>
            remote.clone().timeout(DEADLINE).circuit_breaker(breaker()).remember_refusals().clock(memory),
        "timeout, memory, breaker": remote =>
            remote.clone().timeout(DEADLINE).remember_refusals().clock(memory).circuit_breaker(breaker()),
        "breaker, timeout, memory": remote =>
            remote.clone().circuit_breaker(breaker()).timeout(DEADLINE).remember_refusals().clock(memory),
        "breaker, memory, timeout": remote =>
            remote.clone().circuit_breaker(breaker()).remember_refusals().clock(memory).timeout(DEADLINE),
        "memory, timeout, breaker": remote =>
            remote.clone().remember_refusals().clock(memory).timeout(DEADLINE).circuit_breaker(breaker()),
        "memory, breaker, timeout": remote =>
            remote.clone().remember_refusals().clock(memory).circuit_breaker(breaker()).timeout(DEADLINE),
    }
}

/// Refusals can also be remembered around a store that cannot fail.
#[tokio::test(start_paused = true)]
async fn refusals_of_a_store_that_cannot_fail_can_be_remembered() {
    let (remote, asked) = (Bucket::new(), Asked::of(TokenBucket::per_hour(4)));
    let memory = TokioClock::new();
    let closed = remote
        .clone()
        .fail_closed()
        .remember_refusals()
        .clock(memory);
    assert_eq!(asked.pass(&closed, "a", 10).await, 4);
    remote.usually(Fault::Fails(Kind::Timeout));
    // It is not a refusal by the store, and so it is not remembered.
    assert!(asked.acquire(&closed, "b", 1).await.unwrap().is_undecided());
    assert_eq!((closed.remembered(), closed.hits()), (1, 5));
    // The share ends with the outage, and so do its refusals.
    let fallen = remote.clone().fall_back_to(local()).share(1, 2);
    let fallen = fallen.remember_refusals().clock(memory);
    assert_eq!(asked.pass(&fallen, "c", 10).await, 2);
    assert_eq!((fallen.remembered(), fallen.hits()), (0, 0));
    remote.usually(Fault::None);
    assert_eq!(asked.pass(&fallen, "c", 10).await, 4);
    assert_eq!((fallen.remembered(), fallen.hits()), (1, 5));
}

type Call = Request<()>;

/// Puts the layer over a store in front of a service that says hello.
fn limited<S>(
    rule: AnyRule,
    store: S,
) -> impl Service<Call, Response = Response<String>, Error = Infallible> + Clone
where
    S: Store<AnyRule, Error: NeverFails> + Clone + Send + Sync + 'static,
{
    let hello = service_fn(async |_: Call| Ok(Response::new("hello".to_owned())));
    let layer = RateLimitLayer::new(rule).store(store);
    layer
        .key(Header::new("x-api-key"))
        .respond(Http::new())
        .layer(hello)
}

async fn get<S>(service: &S, key: &str) -> Response<String>
where
    S: Service<Call, Response = Response<String>, Error = Infallible> + Clone,
{
    let request = Request::builder()
        .header("x-api-key", key)
        .body(())
        .unwrap();
    let answer = service.clone().oneshot(request).await;
    answer.unwrap_or_else(|never| match never {})
}

async fn statuses<S>(service: &S, key: &str, count: usize) -> Vec<u16>
where
    S: Service<Call, Response = Response<String>, Error = Infallible> + Clone,
{
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(get(service, key).await.status().as_u16());
    }
    statuses
}

#[tokio::test(start_paused = true)]
async fn a_layer_over_the_whole_stack_answers_429_and_503() {
    let remote = Remote::<AnyRule, TokioClock>::new();
    remote.usually(Fault::Slow(Duration::from_millis(5)));
    let behind = remote.clone().timeout(DEADLINE).circuit_breaker(breaker());
    let remembering = behind.clone().remember_refusals().clock(TokioClock::new());
    let closed = remembering.clone().fail_closed();
    let rule: AnyRule = "token-bucket 3/1m".parse().unwrap();
    let service = limited(rule, closed.clone());
    assert_eq!(statuses(&service, "a", 5).await, [200, 200, 200, 429, 429]);
    // Refused by the store, and then from memory: the same answer, a second later.
    let calls = remote.calls().len();
    advance(Duration::from_secs(1)).await;
    let refused = get(&service, "a").await;
    assert_eq!(refused.headers()["retry-after"], "19");
    assert_eq!(refused.headers()["ratelimit"], "\"default\";r=0;t=19");
    assert_eq!(remote.calls().len(), calls);
    // The store is down: 503 without numbers, but remembered refusals continue.
    remote.usually(Fault::Silent);
    let lost = get(&service, "b").await;
    assert_eq!(lost.status(), 503);
    assert!(!lost.headers().contains_key("ratelimit"));
    assert!(lost.body().contains("#temporary-reduced-capacity"));
    assert_eq!(statuses(&service, "a", 1).await, [429]);
    assert_eq!(statuses(&service, "b", 3).await, [503, 503, 503]);
    assert_eq!((behind.opened(), behind.rejected()), (1, 2));
    assert_eq!((closed.failures(), remembering.hits()), (4, 3));
    remote.usually(Fault::None);
    advance(Duration::from_secs(1)).await;
    assert_eq!(statuses(&service, "b", 4).await, [200, 200, 200, 429]);
    assert_eq!(remote.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_layer_over_a_fallback_continues_with_the_share() {
    let remote = Remote::<AnyRule, TokioClock>::new();
    let store = remote
        .clone()
        .timeout(DEADLINE)
        .circuit_breaker(breaker())
        .remember_refusals()
        .clock(TokioClock::new())
        .fall_back_to(local())
        .share(1, 3);
    let service = limited("token-bucket 6/1h".parse().unwrap(), store.clone());
    assert_eq!(statuses(&service, "a", 2).await, [200, 200]);
    remote.usually(Fault::Silent);
    assert_eq!(statuses(&service, "a", 4).await, [200, 200, 429, 429]);
    let refused = get(&service, "a").await;
    assert_eq!(
        refused.headers()["ratelimit-policy"],
        "\"default\";q=2;w=3600"
    );
    assert_eq!(refused.headers()["retry-after"], "1800");
    remote.usually(Fault::None);
    advance(Duration::from_secs(1)).await;
    // The shared store has charged two of the six. Admissions by the share are not charged there.
    let there = [200, 200, 200, 200, 429];
    assert_eq!(statuses(&service, "a", 5).await, there);
    // A rule without a share.
    let service = limited("token-bucket 2/1h".parse().unwrap(), store.clone());
    remote.usually(Fault::Fails(Kind::Unavailable));
    assert_eq!(statuses(&service, "b", 2).await, [503, 503]);
    assert_eq!(store.turned_away(), 2);
}

/// A store that runs every rule needs no rule type for its remembered refusals. The layer
/// determines it.
#[tokio::test]
async fn the_rule_type_of_remembered_refusals_is_inferred() {
    let hello = service_fn(async |_: Call| Ok::<_, Infallible>(Response::new(String::new())));
    let store = Closed.remember_refusals();
    let layer = RateLimitLayer::new(TokenBucket::per_hour(1)).store(store.clone());
    for _ in 0..3 {
        let answer = layer.layer(hello).oneshot(Request::new(())).await;
        assert_eq!(answer.unwrap().status(), 429);
    }
    assert_eq!((store.remembered(), store.hits()), (1, 2));
}

/// A request dropped while it waits anywhere in the stack leaves no call in flight.
#[tokio::test(start_paused = true)]
async fn dropped_requests_leave_no_call_in_flight() {
    let remote = Remote::<AnyRule, TokioClock>::new();
    let store = remote
        .clone()
        .timeout(DEADLINE)
        .circuit_breaker(breaker())
        .remember_refusals()
        .clock(TokioClock::new())
        .fall_back_to(local())
        .share(1, 2);
    let service = limited("token-bucket 1000/1h".parse().unwrap(), store.clone());
    remote.usually(Fault::Slow(Duration::from_millis(20)));
    let mut given_up = 0;
    for millis in 0..80 {
        let time = Duration::from_millis(millis);
        let answer = tokio::time::timeout(time, get(&service, "a")).await;
        given_up += u64::from(answer.is_err());
        assert_eq!(remote.running(), 0, "after {time:?}");
    }
    assert!((20..80).contains(&given_up), "{given_up}");
    assert!(remote.dropped() >= given_up);
    assert_eq!(statuses(&service, "a", 1).await, [200]);
}
