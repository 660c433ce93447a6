//! Lost settlements: each cause is counted where an operator can read it.

use std::{convert::Infallible, time::Duration};

use tollgate::{
    Cost, LeakyBucket, Quota, RateLimitLayer,
    key::Key,
    store::{
        Backend, CircuitBreakerConfig, Local, NeverFails, Redis, Store, StoreExt,
        driver::{Ask, Settlement},
    },
};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::super::{at_once, only, policy, servers};
use super::{charge_of, settlement};

const RESPONSE: Duration = Duration::from_millis(200);

async fn impatient<Rule>(url: String) -> Redis<Rule>
where
    Rule: tollgate::algorithm::Scripted,
{
    let builder = Redis::builder(url).response_timeout(RESPONSE);
    builder.connect().await.unwrap()
}

/// Waits until the count has reached `expected`, and asserts that it does not grow further.
async fn counted(count: impl Fn() -> u64, expected: u64, context: &str) {
    for _ in 0..1000 {
        if count() >= expected {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(count(), expected, "{context}");
}

#[tokio::test]
async fn a_settlement_that_meets_a_dead_server_is_counted() {
    let server = servers::Redis::start();
    let (store, rule, key) = (
        impatient(server.url()).await,
        at_once(100),
        Key::from(7_u64),
    );
    let [awaited, dropped, outside] = [
        charge_of(&store, &rule, key).await,
        charge_of(&store, &rule, key).await,
        charge_of(&store, &rule, key).await,
    ];
    server.kill();
    let settled = store.settle(vec![settlement(&rule, key, awaited)]).await;
    assert!(settled.unwrap_err().is_unavailable());
    assert_eq!(store.stats().unsettled, 1);
    drop(store.settle(vec![settlement(&rule, key, dropped)]));
    let unsettled = || store.stats().unsettled;
    counted(unsettled, 2, "dropped").await;
    // A thread without a runtime.
    std::thread::scope(|scope| {
        scope.spawn(|| drop(store.settle(vec![settlement(&rule, key, outside)])));
    });
    assert_eq!(store.stats().unsettled, 3);
    server.restart_empty();
}

/// More settlements than one request takes: those in flight, and those waiting.
#[tokio::test]
async fn settlements_that_meet_a_silent_server_are_counted() {
    let server = servers::Redis::start();
    let proxy = servers::Proxy::start(server.address());
    let store = impatient(format!("redis://{}", proxy.address())).await;
    let (rule, key) = (at_once(2000), Key::from(7_u64));
    let mut charged = Vec::new();
    for _ in 0..500 {
        charged.push(charge_of(&store, &rule, key).await);
    }
    proxy.set_flow(servers::Flow::Swallow);
    for decision in charged {
        drop(store.settle(vec![settlement(&rule, key, decision)]));
    }
    counted(|| store.stats().unsettled, 500, "silent").await;
}

#[test]
fn settlements_lost_with_their_runtime_are_counted() {
    let server = servers::Redis::start();
    let proxy = servers::Proxy::start(server.address());
    let rule = at_once(2000);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(async {
        let store = Redis::connect(format!("redis://{}", proxy.address()))
            .await
            .unwrap();
        let mut charged = Vec::new();
        for _ in 0..300 {
            charged.push(charge_of(&store, &rule, Key::from(7_u64)).await);
        }
        proxy.set_flow(servers::Flow::Hold);
        for decision in charged {
            drop(store.settle(vec![settlement(&rule, Key::from(7_u64), decision)]));
        }
        store
    });
    drop(runtime);
    assert_eq!(store.stats().unsettled, 300);
}

/// Delays a request in a layer over `store`, drops it once the server is down, and returns the
/// layer's count of lost settlements then, and after a handler's settlement.
async fn layered<S>(server: &servers::Redis, store: S, context: &str)
where
    S: Store<LeakyBucket, Error: NeverFails>,
    S: Backend<Error: NeverFails> + Clone + Send + Sync + 'static,
{
    let rule = LeakyBucket::new(Quota::new(1, Duration::from_secs(3600))).queue(5);
    let layer = RateLimitLayer::new(rule)
        .policy(policy().clone())
        .store(store.clone());
    let mut service = layer.layer(service_fn(async |_: http::Request<()>| {
        Ok::<_, Infallible>(http::Response::new(String::new()))
    }));
    let call = service.ready().await.unwrap().call(http::Request::new(()));
    assert_eq!(call.await.unwrap().status(), 200, "{context}");
    let mut delayed = Box::pin(service.ready().await.unwrap().call(http::Request::new(())));
    // Waits until the call has its delay.
    let ask = Ask::new(policy(), &rule, Key::GLOBAL, Cost::ONE);
    while only(answer(&store, &ask).await).remaining() != Some(4) {
        assert!(futures_util::poll!(delayed.as_mut()).is_pending());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for _ in 0..50 {
        assert!(futures_util::poll!(delayed.as_mut()).is_pending());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let other = Key::from(8_u64);
    let others = [Ask::new(policy(), &rule, other, Cost::ONE)];
    let check = store.acquire(&others).into_future().await;
    let mut decision = only(check.unwrap_or_else(NeverFails::never));
    server.kill();
    assert_eq!(layer.unsettled(), 0, "{context}");
    drop(delayed);
    assert_eq!(layer.cancelled(), 1, "{context}");
    counted(|| layer.unsettled(), 1, context).await;
    // A look opens the breaker.
    answer(&store, &ask).await;
    // A handler that settles the charge itself.
    let charge = decision.take_charge().unwrap();
    let settlement = Settlement::new(policy(), &rule, other, charge, 0).unwrap();
    drop(store.settle(vec![settlement]));
    counted(|| layer.unsettled(), 2, context).await;
    server.restart_empty();
}

async fn answer<S>(store: &S, ask: &Ask<'_, LeakyBucket>) -> tollgate::store::driver::Decisions
where
    S: Store<LeakyBucket, Error: NeverFails>,
{
    let look = store.look(std::slice::from_ref(ask)).into_future().await;
    look.unwrap_or_else(NeverFails::never)
}

/// Below every failure policy, and above every wrapper.
#[tokio::test]
async fn a_layer_counts_the_settlements_that_its_store_lost() {
    let server = servers::Redis::start();
    let deadline = Duration::from_millis(500);
    let redis = async || impatient::<LeakyBucket>(server.url()).await;
    layered(&server, redis().await.fail_open(), "fail_open").await;
    layered(&server, redis().await.fail_closed(), "fail_closed").await;
    let store = redis().await.timeout(deadline).remember_refusals();
    layered(&server, store.fail_open(), "with a deadline").await;
    let store = redis().await.boxed().fail_open();
    layered(&server, std::sync::Arc::new(store), "boxed").await;
    // The first settlement opens the breaker, and the second one is not sent.
    let breaker = CircuitBreakerConfig::new().failures(1);
    let store = redis().await.timeout(deadline).circuit_breaker(breaker);
    layered(&server, store.clone().fail_open(), "behind a breaker").await;
    assert_eq!(store.rejected(), 1);
    let local = Local::new();
    let store = redis()
        .await
        .fall_back_to(local)
        .rule(|rule: &LeakyBucket| Some(*rule));
    layered(&server, store, "with a local store").await;
}
