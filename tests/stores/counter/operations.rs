//! The number of store operations per call.

use std::time::Duration;

use tollgate::{
    Cost, FixedWindow, Policy, SlidingWindow,
    key::Key,
    store::{Store, StoreExt, driver::Ask},
    time::ManualClock,
};

use super::{Node, acquire, ask, cache::Cache, cache::Ops, look, node, settle};

#[tokio::test]
async fn an_admitted_call_is_one_operation() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let (fixed, sliding) = (node(&cache, &clock), node(&cache, &clock));
    for n in 1..=10 {
        let rule = FixedWindow::per_hour(10);
        assert!(acquire(&fixed, &rule, 1).await.unwrap().is_admitted());
        let rule = SlidingWindow::per_hour(10).slices(60);
        assert!(acquire(&sliding, &rule, 1).await.unwrap().is_admitted());
        let adds = 2 * n;
        assert_eq!(
            cache.ops(),
            Ops {
                adds,
                ..Ops::default()
            }
        );
    }
}

/// The calls of an exhausted client only read. The last admission of the window has cached that
/// nothing remains.
#[tokio::test]
async fn a_refused_call_is_one_operation() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let (store, rule) = (node(&cache, &clock), FixedWindow::per_hour(10));
    for _ in 0..1000 {
        acquire(&store, &rule, 1).await.unwrap();
    }
    let ops = Ops {
        adds: 10,
        reads: 990,
        ..Ops::default()
    };
    assert_eq!(cache.ops(), ops);
    // Each other node adds once before it knows of the refusal.
    let other: Node<FixedWindow> = node(&cache, &clock);
    for _ in 0..1000 {
        assert!(!acquire(&other, &rule, 1).await.unwrap().is_admitted());
    }
    let ops = Ops {
        adds: 11,
        subtracts: 1,
        reads: 990 + 999,
        ..Ops::default()
    };
    assert_eq!(cache.ops(), ops);
    let stats = other.stats();
    let counted = (
        stats.additions,
        stats.readings,
        stats.taken_back,
        stats.left_behind,
    );
    assert_eq!(counted, (1, 999, 1, 0));
    // The next window starts over.
    clock.advance(Duration::from_secs(3600));
    assert!(acquire(&other, &rule, 1).await.unwrap().is_admitted());
    assert_eq!(cache.ops().all(), ops.all() + 1);
}

/// Some servers, such as DynamoDB, refuse to read a key that comes twice; so does the cache.
#[tokio::test]
async fn a_refused_call_reads_each_counter_once() {
    let clock = ManualClock::default();
    let (store, fixed) = (node(&Cache::new(&clock), &clock), FixedWindow::per_hour(4));
    let policy = Policy::new("api");
    let ask = |key: &str, cost| Ask::new(&policy, &fixed, key.into(), Cost::new(cost).unwrap());
    assert!(
        store
            .acquire(&[ask("alice", 4)])
            .await
            .unwrap()
            .is_admitted()
    );
    for _ in 0..2 {
        let asks = [ask("dave", 2), ask("alice", 1), ask("dave", 1)];
        let decisions = store.acquire(&asks).await.unwrap();
        let looks = store.look(&asks).await.unwrap();
        for decisions in [decisions, looks] {
            let left = decisions.as_slice().iter().map(|one| one.remaining());
            assert_eq!(left.collect::<Vec<_>>(), [Some(4), Some(0), Some(4)]);
        }
    }
}

/// Holds also if units return one by one.
#[tokio::test]
async fn a_call_under_a_sliding_window_is_one_operation() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let (store, rule) = (node(&cache, &clock), SlidingWindow::per_minute(20));
    let (mut admitted, mut refused) = (0, 0);
    for _ in 0..600 {
        let decision = acquire(&store, &rule, 1).await.unwrap();
        admitted += u64::from(decision.is_admitted());
        refused += u64::from(!decision.is_admitted());
        clock.advance(Duration::from_millis(500));
    }
    assert!(admitted > 80 && refused > 400, "{admitted} and {refused}");
    let ops = cache.ops();
    assert_eq!((ops.adds, ops.subtracts), (admitted, 0));
    assert_eq!(ops.reads, refused);
}

/// Holds also for calls of several costs, some of which pass.
#[tokio::test]
async fn refused_calls_of_different_costs_are_one_read() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let (store, rule) = (node(&cache, &clock), FixedWindow::per_hour(100));
    for _ in 0..40 {
        assert!(acquire(&store, &rule, 2).await.unwrap().is_admitted());
        // The first refusal is not known in advance.
        assert!(!acquire(&store, &rule, 99).await.unwrap().is_admitted());
    }
    let ops = cache.ops();
    assert_eq!((ops.adds, ops.subtracts, ops.reads), (41, 1, 39));
    for _ in 0..100 {
        for cost in [20, 21, 50, 20] {
            acquire(&store, &rule, cost).await.unwrap();
        }
    }
    let ops = cache.ops();
    assert_eq!((ops.adds, ops.subtracts, ops.reads), (42, 1, 39 + 399));
}

/// A refund on another node is noticed, and the first admission clears the cached refusal.
#[tokio::test]
async fn a_refund_on_another_node_is_noticed() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let [store, other]: [Node<FixedWindow>; 2] = [node(&cache, &clock), node(&cache, &clock)];
    let rule = FixedWindow::per_hour(4);
    let whole = acquire(&other, &rule, 4).await.unwrap();
    assert!(!acquire(&store, &rule, 1).await.unwrap().is_admitted());
    settle(&other, &rule, &whole, 0).await.unwrap();
    let before = cache.ops();
    for left in [3, 2] {
        let decision = acquire(&store, &rule, 1).await.unwrap();
        assert_eq!(decision.remaining(), Some(left));
    }
    let ops = cache.ops();
    assert_eq!((ops.reads - before.reads, ops.adds - before.adds), (1, 2));
}

/// A cost above the limit adds nothing, even if the client's window is empty.
#[tokio::test]
async fn a_cost_above_the_limit_adds_nothing() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let (store, rule) = (node(&cache, &clock), FixedWindow::per_hour(4));
    for cost in [5, 1 << 40, u64::MAX] {
        let decision = acquire(&store, &rule, cost).await.unwrap();
        assert_eq!(
            (decision.is_admitted(), decision.retry_after()),
            (false, None)
        );
    }
    assert_eq!(
        cache.ops(),
        Ops {
            reads: 3,
            ..Ops::default()
        }
    );
}

/// A cost that can never pass leaves what is known about lower costs.
#[tokio::test]
async fn a_cost_above_the_limit_leaves_the_refusal_of_its_key() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let (store, rule) = (node(&cache, &clock), FixedWindow::per_hour(4));
    assert!(acquire(&store, &rule, 4).await.unwrap().is_admitted());
    for cost in [1, 5, 1, 5] {
        assert!(!acquire(&store, &rule, cost).await.unwrap().is_admitted());
    }
    let ops = Ops {
        adds: 2,
        subtracts: 1,
        reads: 3,
        ..Ops::default()
    };
    assert_eq!(cache.ops(), ops);
}

/// Exhausted keys do not evict each other while there is room.
#[tokio::test]
async fn many_exhausted_keys_are_remembered() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let (store, rule) = (node(&cache, &clock), FixedWindow::per_hour(1));
    let keys = 500_u64;
    for round in 0..3 {
        for key in 0..keys {
            let decisions = store.acquire(&[ask(&rule, key.into(), 1)]).await.unwrap();
            assert_eq!(decisions.is_admitted(), round == 0);
        }
    }
    let ops = cache.ops();
    assert_eq!((ops.adds, ops.subtracts, ops.reads), (keys, 0, 2 * keys));
}

/// If a refusal is expected, all asks are read in one operation.
#[tokio::test]
async fn several_asks_are_read_in_one_operation() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let (store, rule) = (node(&cache, &clock), FixedWindow::per_hour(2));
    let two = [ask(&rule, Key::from("a"), 1), ask(&rule, Key::from("b"), 2)];
    assert!(store.acquire(&two).await.unwrap().is_admitted());
    assert_eq!(cache.ops().all(), 2);
    for _ in 0..10 {
        let decisions = store.acquire(&two).await.unwrap();
        let verdicts: Vec<_> = decisions
            .as_slice()
            .iter()
            .map(|one| one.is_admitted())
            .collect();
        assert_eq!(verdicts, [true, false]);
    }
    let ops = Ops {
        adds: 2,
        reads: 10,
        ..Ops::default()
    };
    assert_eq!(cache.ops(), ops);
    assert_eq!(cache.counters().into_values().sum::<u64>(), 3);
}

#[tokio::test]
async fn remembered_refusals_cost_nothing() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let store = node::<FixedWindow>(&cache, &clock).remember_refusals();
    let rule = FixedWindow::per_hour(3);
    for _ in 0..100 {
        acquire(&store, &rule, 1).await.unwrap();
    }
    assert_eq!(
        cache.ops(),
        Ops {
            adds: 3,
            reads: 1,
            ..Ops::default()
        }
    );
    assert_eq!(look(&store, &rule).await.unwrap().remaining(), Some(0));
}
