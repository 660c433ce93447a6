//! A store that panics must not keep later calls waiting.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate::{
    Cost, Policy, TokenBucket,
    key::Key,
    store::{
        Backend, LeaseConfig, Store, StoreError, StoreExt,
        driver::{Ask, Decisions, Transact, Transaction, Transactional},
    },
    time::ManualClock,
};

use crate::leases::map_store::MapStore;

/// Panics in every third call while it is told to.
#[derive(Clone, Default)]
struct Panics {
    states: MapStore<TokenBucket>,
    is_on: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
}

impl Backend for Panics {
    type Error = StoreError;
}

impl Transact<TokenBucket> for Panics {
    fn transact(&self, transaction: Transaction<'_, TokenBucket>) -> Result<Decisions, StoreError> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(
            !self.is_on.load(Ordering::Relaxed) || !number.is_multiple_of(3),
            "on purpose"
        );
        self.states.transact(transaction)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Result<(), StoreError> {
        Transact::reset(&self.states, policy, key)
    }
}

#[tokio::test]
async fn a_panic_of_the_store_is_survived() {
    let (clock, store) = (ManualClock::default(), Panics::default());
    let config = LeaseConfig::new().duration(Duration::from_millis(100));
    let leased =
        Transactional::with_clock(store.clone(), clock.clone()).leased(config.clock(clock.clone()));
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_second(1000));
    store.is_on.store(true, Ordering::Relaxed);
    let call = || {
        let (leased, policy, rule) = (leased.clone(), policy.clone(), rule);
        async move {
            let ask = Ask::new(&policy, &rule, "alice".into(), Cost::ONE);
            leased.acquire(&[ask]).await
        }
    };
    let (mut failed, mut asked) = (0, 0);
    for n in 0..500 {
        // Some callers hang up at once.
        let task = tokio::spawn(call());
        if n % 7 == 0 {
            task.abort();
        }
        failed += u64::from(task.await.is_err());
        tokio::task::yield_now().await;
        clock.advance(Duration::from_millis(1));
    }
    assert!(failed > 0);
    store.is_on.store(false, Ordering::Relaxed);
    clock.advance(Duration::from_secs(2));
    for _ in 0..500 {
        let decisions = tokio::time::timeout(Duration::from_secs(30), call()).await;
        asked += u64::from(decisions.unwrap().unwrap().is_admitted());
        tokio::task::yield_now().await;
        clock.advance(Duration::from_millis(2));
    }
    assert_eq!(asked, 500, "{:?}", leased.stats());
    let stats = leased.stats();
    assert_eq!(
        stats.granted,
        stats.spent + stats.left + stats.expired + stats.returned + stats.lost,
        "{stats:?}"
    );
}
