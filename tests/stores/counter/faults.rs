//! Stores that fail or return wrong totals.

use std::time::Duration;

use tollgate::{
    Cost, FixedWindow, SlidingWindow,
    key::Key,
    store::{
        Backend, Store, StoreError,
        driver::{CounterStore, CounterStoreBuilder, Increment, Settlement, Totals},
    },
    time::ManualClock,
};

use super::{
    Node, acquire,
    cache::{Cache, Fault},
    look, node, policy, settle,
};

/// A failed call is undecided and never admitted. It charges at most its cost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_calls_are_never_admitted() {
    for (seed, fault) in [Fault::Before, Fault::After, Fault::Before, Fault::After]
        .into_iter()
        .enumerate()
    {
        let clock = ManualClock::default();
        let cache = Cache::new(&clock).slow(seed as u64, 5);
        cache.fail([3, 2, 3], Some(fault));
        let nodes: Vec<Node<FixedWindow>> = (0..3).map(|_| node(&cache, &clock)).collect();
        let rule = FixedWindow::per_hour(30);
        let tasks: Vec<_> = (0..120)
            .map(|n| {
                let node = nodes[n % nodes.len()].clone();
                let cost = 1 + n as u64 % 3;
                tokio::spawn(async move { (cost, acquire(&node, &rule, cost).await) })
            })
            .collect();
        let (mut admitted, mut unknown) = (0, 0);
        for task in tasks {
            match task.await.unwrap() {
                (cost, Ok(decision)) if decision.is_admitted() => admitted += cost,
                // Some of these calls were refused, and their additions could not be taken back.
                (cost, Ok(_)) => unknown += cost,
                (cost, Err(error)) => {
                    assert_eq!(error.is_unavailable(), fault == Fault::Before, "{error}");
                    assert_eq!(error.is_timeout(), fault == Fault::After, "{error}");
                    unknown += cost;
                }
            }
        }
        assert!((1..=30).contains(&admitted), "{admitted}");
        assert!(
            cache.only() <= admitted + unknown,
            "{} of {admitted}",
            cache.only()
        );
        // No admitted unit is lost.
        assert!(cache.only() >= admitted, "{} of {admitted}", cache.only());
    }
}

/// If the result of an addition is unknown, it is not taken back, because that could refund the
/// units of other clients.
#[tokio::test]
async fn an_addition_without_an_answer_is_not_taken_back() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let (store, rule) = (node(&cache, &clock), FixedWindow::per_hour(10));
    cache.fail([1, 0, 0], Some(Fault::After));
    assert!(acquire(&store, &rule, 4).await.unwrap_err().is_timeout());
    cache.fail([1, 0, 0], Some(Fault::Before));
    assert!(
        acquire(&store, &rule, 4)
            .await
            .unwrap_err()
            .is_unavailable()
    );
    cache.fail([0; 3], None);
    assert_eq!(look(&store, &rule).await.unwrap().remaining(), Some(6));
    assert_eq!((cache.ops().adds, cache.ops().subtracts), (2, 0));
}

/// A refusal stays a refusal if its addition cannot be taken back. The added units count, and the
/// failure is counted.
#[tokio::test]
async fn units_that_cannot_be_taken_back_stay_until_the_window_ends() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let (store, rule) = (node(&cache, &clock), FixedWindow::per_hour(10));
    assert!(acquire(&store, &rule, 6).await.unwrap().is_admitted());
    cache.fail([0, 1, 0], Some(Fault::Before));
    let refused = acquire(&store, &rule, 5).await.unwrap();
    assert_eq!(
        (refused.is_admitted(), refused.remaining()),
        (false, Some(4))
    );
    assert_eq!(
        (store.stats().left_behind, store.stats().taken_back),
        (1, 0)
    );
    assert_eq!(look(&store, &rule).await.unwrap().remaining(), Some(0));
    // Until the window ends.
    clock.advance(Duration::from_secs(3600));
    cache.fail([0; 3], None);
    assert!(acquire(&store, &rule, 10).await.unwrap().is_admitted());
}

/// After a failed read, such as of a value that is not a number, the next call adds: this may
/// repair the counter.
#[tokio::test]
async fn after_a_failed_read_the_next_call_adds() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let (store, rule) = (node(&cache, &clock), FixedWindow::per_hour(1));
    assert!(acquire(&store, &rule, 1).await.unwrap().is_admitted());
    cache.fail([0, 0, 1], Some(Fault::Before));
    assert!(
        acquire(&store, &rule, 1)
            .await
            .unwrap_err()
            .is_unavailable()
    );
    assert!(!acquire(&store, &rule, 1).await.unwrap().is_admitted());
    assert_eq!((cache.ops().adds, cache.ops().reads), (2, 1));
    assert_eq!(cache.only(), 1);
}

/// If one of several asks fails, the earlier ones are refunded.
#[tokio::test]
async fn earlier_asks_are_refunded_when_a_later_one_fails() {
    use tollgate::{key::Key, store::Store};
    let clock = ManualClock::default();
    let mut failed = 0;
    for seed in 0..40 {
        let cache = Cache::new(&clock).slow(seed, 0);
        let (store, rule) = (node(&cache, &clock), FixedWindow::per_hour(10));
        cache.fail([2, 0, 0], Some(Fault::Before));
        let asks = ["a", "b", "c"].map(|key| super::ask(&rule, Key::from(key), 2));
        let answer = store.acquire(&asks).await;
        let left: u64 = cache.counters().into_values().sum();
        assert_eq!(left, if answer.is_ok() { 6 } else { 0 }, "seed {seed}");
        failed += u64::from(answer.is_err() && cache.ops().adds > 1);
    }
    assert!(failed > 5, "{failed}");
}

/// Counters near the largest number refuse, and no number wraps.
#[tokio::test]
async fn totals_near_the_largest_number_refuse() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let (fixed, sliding) = (node(&cache, &clock), node(&cache, &clock));
    let (rule, slides) = (
        FixedWindow::per_hour(10),
        SlidingWindow::per_hour(10).slices(3),
    );
    acquire(&fixed, &rule, 1).await.unwrap();
    acquire(&sliding, &slides, 1).await.unwrap();
    let names: Vec<_> = cache.counters().into_keys().collect();
    assert_eq!(names.len(), 2);
    for total in [u64::MAX, u64::MAX - 1, 1 << 63] {
        for name in &names {
            cache.put(name, total);
        }
        for cost in [1, 10, 11] {
            let decision = acquire(&fixed, &rule, cost).await.unwrap();
            assert_eq!(
                (decision.is_admitted(), decision.remaining()),
                (false, Some(0))
            );
            let decision = acquire(&sliding, &slides, cost).await.unwrap();
            assert_eq!(
                (decision.is_admitted(), decision.remaining()),
                (false, Some(0))
            );
        }
    }
    // With forced charges.
    let (cache, limit) = (Cache::new(&clock), 10);
    let store = node(&cache, &clock);
    let charged = acquire(&store, &rule, limit).await.unwrap();
    for _ in 0..20 {
        settle(&store, &rule, &charged, u64::MAX).await.unwrap();
        assert_eq!(look(&store, &rule).await.unwrap().remaining(), Some(0));
    }
    assert!(cache.only() > 1 << 48);
}

/// Returns arbitrary totals.
struct Liar {
    total: u64,
    beside: Vec<u64>,
}

impl Increment for Liar {
    async fn add(
        &self,
        _: &[u8],
        _: u64,
        _: Duration,
        _: &[Box<[u8]>],
    ) -> Result<Totals, StoreError> {
        Ok(Totals {
            total: self.total,
            beside: self.beside.clone(),
        })
    }

    async fn subtract(&self, _: &[u8], _: u64) -> Result<(), StoreError> {
        Ok(())
    }

    async fn read(&self, _: &[Box<[u8]>]) -> Result<Vec<u64>, StoreError> {
        Ok(self.beside.clone())
    }

    async fn remove(&self, _: &[Box<[u8]>]) -> Result<(), StoreError> {
        Ok(())
    }
}

#[tokio::test]
async fn impossible_totals_are_errors() {
    let clock = ManualClock::default();
    let store = |total, beside: &[u64]| -> CounterStore<Liar, SlidingWindow> {
        let beside = beside.to_vec();
        CounterStoreBuilder::new(Liar { total, beside })
            .clock(clock.clone())
            .clocks_apart(Duration::ZERO)
            .build()
    };
    let rule = SlidingWindow::per_hour(10);
    assert!(
        acquire(&store(5, &[0]), &rule, 5)
            .await
            .unwrap()
            .is_admitted()
    );
    for (total, beside) in [(4, &[0][..]), (0, &[0]), (5, &[]), (5, &[0, 0])] {
        let error = acquire(&store(total, beside), &rule, 5).await.unwrap_err();
        let source = error.to_string();
        assert!(source.contains("expected"), "{source}");
    }
    for beside in [&[][..], &[0], &[0, 0, 0]] {
        assert!(look(&store(5, beside), &rule).await.is_err(), "{beside:?}");
    }
    let cost = Cost::new(1 << 40).unwrap();
    let found = acquire(&store(u64::MAX, &[u64::MAX]), &rule, cost.get()).await;
    assert!(found.is_err(), "one total for two counters: {found:?}");
}

#[test]
fn settlements_outside_of_a_runtime_are_counted() {
    let clock = ManualClock::default();
    let (cache, rule) = (Cache::new(&clock), FixedWindow::per_hour(3));
    let store = node(&cache, &clock);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut decision = runtime.block_on(acquire(&store, &rule, 1)).unwrap();
    let charge = decision.take_charge().unwrap();
    let settlement = Settlement::new(policy(), &rule, Key::GLOBAL, charge, 0).unwrap();
    drop(store.settle(vec![settlement]));
    assert_eq!((store.stats().unsettled, store.unsettled()), (1, Some(1)));
}
