//! Grants of units ahead of their use, in fixed windows.

use std::time::Duration;

use support::Random;
use tollgate::{
    Decision, FixedWindow, SlidingWindow,
    key::Key,
    store::{Store, StoreError},
    time::ManualClock,
};

use super::{
    Node, acquire, ask,
    cache::{Cache, Fault, Ops},
    look, node, only, settle,
};

async fn grant(
    node: &Node<FixedWindow>,
    rule: &FixedWindow,
    cost: u64,
    up_to: u64,
) -> Result<Decision, StoreError> {
    let asks = [ask(rule, Key::GLOBAL, cost).up_to(up_to)];
    node.acquire(&asks).await.map(only)
}

fn units(decision: &Decision) -> u64 {
    let charge = { *decision }.take_charge();
    charge.map_or(0, |charge| charge.cost)
}

#[tokio::test]
async fn a_grant_is_what_is_asked_for_or_all_that_remains() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let (store, rule): (Node<FixedWindow>, _) = (node(&cache, &clock), FixedWindow::per_hour(100));
    let mut left = 100;
    for (cost, up_to, granted) in [(1, 0, 1), (5, 3, 5), (2, 40, 40), (10, u64::MAX, 54)] {
        let decision = grant(&store, &rule, cost, up_to).await.unwrap();
        left -= granted;
        assert_eq!(units(&decision), granted, "{cost} up to {up_to}");
        assert_eq!(decision.remaining(), Some(left));
        assert_eq!(cache.only(), 100 - left);
    }
    let ops = Ops {
        adds: 4,
        subtracts: 1,
        ..Ops::default()
    };
    assert_eq!(cache.ops(), ops);
    let stats = store.stats();
    assert_eq!((stats.cut, stats.taken_back, stats.left_behind), (1, 0, 0));
    // Of a refused call nothing is left, and the next one only reads.
    let before = cache.ops();
    let other = node(&cache, &clock);
    for _ in 0..2 {
        assert_eq!(units(&grant(&other, &rule, 1, 50).await.unwrap()), 0);
        assert_eq!(cache.only(), 100);
    }
    let ops = Ops {
        adds: before.adds + 1,
        subtracts: before.subtracts + 1,
        reads: before.reads + 1,
        ..before
    };
    assert_eq!(cache.ops(), ops);
    // The node that was granted the last units knows about such calls, too.
    assert_eq!(units(&grant(&store, &rule, 10, 50).await.unwrap()), 0);
    let reads = ops.reads + 1;
    assert_eq!(cache.ops(), Ops { reads, ..ops });
}

#[tokio::test]
async fn a_grant_is_settled_in_its_own_window() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let (store, rule): (Node<FixedWindow>, _) = (node(&cache, &clock), FixedWindow::per_hour(100));
    let first = grant(&store, &rule, 1, 60).await.unwrap();
    settle(&store, &rule, &first, 7).await.unwrap();
    assert_eq!(look(&store, &rule).await.unwrap().remaining(), Some(93));
    let late = grant(&store, &rule, 1, 50).await.unwrap();
    clock.advance(Duration::from_secs(3600));
    acquire(&store, &rule, 9).await.unwrap();
    settle(&store, &rule, &late, 0).await.unwrap();
    assert_eq!(look(&store, &rule).await.unwrap().remaining(), Some(91));
}

#[tokio::test]
async fn a_sliding_window_grants_the_cost_alone() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let rule = SlidingWindow::per_hour(100).slices(4);
    let store: Node<SlidingWindow> = node(&cache, &clock);
    let asks = [ask(&rule, Key::GLOBAL, 3).up_to(50)];
    let decision = store.acquire(&asks).await.map(only).unwrap();
    assert_eq!(units(&decision), 3);
    assert_eq!(cache.only(), 3);
}

/// Of several asks, one of which is refused, nothing is left of the grants before it.
#[tokio::test]
async fn a_refused_ask_takes_back_the_grants_beside_it() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let store: Node<FixedWindow> = node(&cache, &clock);
    let [many, few] = [100, 4].map(FixedWindow::per_hour);
    acquire(&store, &few, 2).await.unwrap();
    let asks = [
        ask(&many, Key::from("many"), 1).up_to(300),
        ask(&few, Key::GLOBAL, 3).up_to(9),
    ];
    assert!(!store.acquire(&asks).await.unwrap().is_admitted());
    let mut totals: Vec<_> = cache.counters().into_values().collect();
    totals.sort_unstable();
    assert_eq!(totals, [0, 2]);
}

/// On any interleaving, never more than the limit is granted, and the counter holds what was
/// granted in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_grants_never_exceed_the_limit_and_lose_nothing() {
    let mut cut = 0;
    let seeds = support::cases(200).max(40);
    for seed in 0..seeds {
        let clock = ManualClock::default();
        let cache = Cache::new(&clock).slow(seed, seed % 9);
        let mut random = Random::new(seed);
        let limit = 1 + random.below(80);
        let rule = FixedWindow::per_hour(limit);
        let nodes: Vec<Node<FixedWindow>> = (0..4).map(|_| node(&cache, &clock)).collect();
        let tasks: Vec<_> = (0..40)
            .map(|n| {
                let (node, rule) = (nodes[n % nodes.len()].clone(), rule);
                let (cost, up_to) = (1 + random.below(4), random.below(30));
                let actual = random.below(2 * cost);
                let settles = random.below(4) == 0;
                tokio::spawn(async move {
                    let decision = grant(&node, &rule, cost, up_to).await.unwrap();
                    let granted = units(&decision);
                    assert!(granted == 0 || (cost..=cost.max(up_to)).contains(&granted));
                    if settles && granted > actual {
                        settle(&node, &rule, &decision, actual).await.unwrap();
                        return actual;
                    }
                    granted
                })
            })
            .collect();
        let mut held = 0;
        for task in tasks {
            held += task.await.unwrap();
        }
        assert!(held <= limit, "seed {seed}: {held} of {limit}");
        assert_eq!(cache.only(), held, "seed {seed}");
        cut += nodes.iter().map(|node| node.stats().cut).sum::<u64>();
        // No call is in flight any more, so the rest is granted at once.
        let rest = grant(&node(&cache, &clock), &rule, 1, limit).await.unwrap();
        assert_eq!(units(&rest), limit - held, "seed {seed}");
    }
    assert!(4 * cut > seeds, "{cut}");
}

/// Units that cannot be taken back count until the window ends: less is granted until then, never
/// more.
#[tokio::test]
async fn an_excess_that_cannot_be_taken_back_is_left_behind() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let (store, rule): (Node<FixedWindow>, _) = (node(&cache, &clock), FixedWindow::per_hour(10));
    grant(&store, &rule, 1, 4).await.unwrap();
    cache.fail([0, 1, 0], Some(Fault::Before));
    assert_eq!(units(&grant(&store, &rule, 1, 9).await.unwrap()), 6);
    assert_eq!((store.stats().cut, store.stats().left_behind), (0, 1));
    assert_eq!(cache.only(), 13);
    cache.fail([0; 3], None);
    assert!(!acquire(&store, &rule, 1).await.unwrap().is_admitted());
}
