//! A charge settles once, under its own policy. A settlement that fails is counted and not
//! repeated.

use std::{convert::Infallible, sync::atomic::Ordering};

use http::{Request, Response};
use tollgate::{
    Cost, Decision, Outcome, Policy, RateLimitLayer, TokenBucket,
    store::{
        Local, Store,
        driver::{Ask, CasStore, Settlement},
    },
    time::ManualClock,
};
use tower::{Layer, ServiceExt, service_fn};

use super::{
    memory::{Memory, Ways, driver},
    stores::policy,
};

fn ask(rule: &TokenBucket) -> Ask<'_, TokenBucket> {
    Ask::new(policy(), rule, "alice".into(), Cost::new(4).unwrap())
}

/// A handler, a layer around it and a task that it spawned have clones of one outcome.
#[tokio::test]
async fn a_charge_settles_once_among_clones_of_its_outcome() {
    let (store, rule) = (Local::<TokenBucket>::new(), TokenBucket::per_hour(9));
    let limit = RateLimitLayer::new(rule)
        .policy(policy().clone())
        .store(store.clone());
    let handler = service_fn(async |request: Request<()>| {
        let outcome = request.extensions().get::<Outcome>().unwrap().clone();
        let clones: Vec<_> = (0..8).map(|_| outcome.clone()).collect();
        let tasks = clones.into_iter().map(|outcome| {
            tokio::spawn(async move { outcome.take_charge("api").ok().map(|charge| charge.cost) })
        });
        let mut taken = Vec::new();
        for task in tasks {
            taken.extend(task.await.unwrap());
        }
        assert_eq!(taken, [1], "of eight clones, one takes the charge");
        for holder in [&outcome, request.extensions().get().unwrap()] {
            let error = holder.take_charge("api").unwrap_err().to_string();
            assert!(error.contains("was taken already"), "{error}");
            // The decision in an outcome does not contain the charge either.
            let mut decision: Decision = *holder.get("api").unwrap();
            assert!(decision.take_charge().is_none());
        }
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let response = limit
        .layer(handler)
        .oneshot(Request::new(()))
        .await
        .unwrap();
    assert!(response.status().is_success());
}

/// Asserts that a charge is settled under the policy that made it, and under no other.
async fn settles_under_its_policy_alone<S: Store<TokenBucket>>(store: &S)
where
    S::Error: std::fmt::Debug,
{
    let rule = TokenBucket::per_hour(9);
    for decisions in [
        store.acquire(&[ask(&rule)]).await.unwrap(),
        store.acquire(&[ask(&rule), ask(&rule)]).await.unwrap(),
    ] {
        for decision in decisions.as_slice() {
            let charge = || { *decision }.take_charge();
            let Some(charge) = charge() else {
                continue;
            };
            let web = Policy::new("web");
            let wrong = Settlement::new(&web, &rule, "alice".into(), charge, 0);
            let error = wrong.unwrap_err().to_string();
            assert!(error.contains("`web` did not make this charge"), "{error}");
            let charge = { *decision }.take_charge().unwrap();
            let right = Settlement::new(policy(), &rule, "alice".into(), charge, 0);
            store.settle(vec![right.unwrap()]).await.unwrap();
        }
    }
    let look = store.look(&[ask(&rule)]).await.unwrap().as_slice()[0];
    assert_eq!(look.remaining(), Some(9));
}

#[tokio::test]
async fn a_charge_is_not_settled_under_another_policy() {
    settles_under_its_policy_alone(&Local::new()).await;
    settles_under_its_policy_alone(&driver(Memory::new(
        ManualClock::default(),
        Ways::default(),
    )))
    .await;
}

#[cfg(all(target_os = "linux", feature = "redis"))]
#[tokio::test]
async fn a_charge_is_not_settled_under_another_policy_in_redis() {
    let server = super::servers::Redis::start();
    let store = tollgate::store::Redis::connect(server.url()).await.unwrap();
    settles_under_its_policy_alone(&store).await;
}

/// Half of the failing swaps take effect, so repeating one could refund twice.
#[tokio::test]
async fn a_remote_settlement_that_fails_is_counted_and_not_repeated() {
    let memory = Memory::new(ManualClock::default(), Ways::default());
    let is_down = std::sync::Arc::clone(&memory.is_down);
    let store: CasStore<_, TokenBucket> = driver(memory);
    let rule = TokenBucket::per_hour(9);
    let mut decision = store.acquire(&[ask(&rule)]).await.unwrap().as_slice()[0];
    let charge = decision.take_charge().unwrap();
    let settlement = Settlement::new(policy(), &rule, "alice".into(), charge, 0).unwrap();
    is_down.store(true, Ordering::Relaxed);
    // No caller waits for it, as after a dropped call.
    drop(store.settle(vec![settlement]));
    for _ in 0..1_000 {
        if store.stats().unsettled > 0 {
            break;
        }
        tokio::task::yield_now().await;
    }
    is_down.store(false, Ordering::Relaxed);
    let (loads, swaps) = (store.stats().loads, store.stats().swaps);
    tokio::task::yield_now().await;
    assert_eq!(store.stats().unsettled, 1);
    assert_eq!((store.stats().loads, store.stats().swaps), (loads, swaps));
    let look = store.look(&[ask(&rule)]).await.unwrap().as_slice()[0];
    assert_eq!(look.remaining(), Some(5));
}
