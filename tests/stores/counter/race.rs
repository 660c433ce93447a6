//! Nodes and tasks that charge one key concurrently.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use support::Random;
use tollgate::{
    Cost, FixedWindow, Policy,
    key::Key,
    store::{Store, StoreError, driver::Increment},
    time::ManualClock,
};

use super::{Node, acquire, ask, cache::Cache, node, only};

/// Returns the admitted units of calls with these costs, each in a task of its own, on several
/// nodes.
async fn race(cache: &Cache, clock: &ManualClock, rule: FixedWindow, costs: &[u64]) -> u64 {
    let nodes: Vec<Node<FixedWindow>> = (0..4).map(|_| node(cache, clock)).collect();
    let tasks: Vec<_> = costs
        .iter()
        .enumerate()
        .map(|(n, cost)| {
            let (node, cost) = (nodes[n % nodes.len()].clone(), *cost);
            tokio::spawn(async move {
                let decision = acquire(&node, &rule, cost).await.unwrap();
                if decision.is_admitted() { cost } else { 0 }
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    admitted
}

/// Calls of one cost: exactly as many pass as fit, for any interleaving.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_calls_pass_as_many_as_fit() {
    for seed in 0..60 {
        let clock = ManualClock::default();
        let cache = Cache::new(&clock).slow(seed, seed % 12);
        let (limit, cost) = (1 + seed % 17, 1 + seed % 4);
        let rule = FixedWindow::per_hour(limit);
        let admitted = race(&cache, &clock, rule, &[cost; 64]).await;
        assert_eq!(admitted, limit / cost * cost, "seed {seed}");
        // The additions of refused calls have been taken back.
        assert_eq!(cache.only(), admitted, "seed {seed}");
    }
}

/// Calls of mixed costs: never more than the limit is admitted, and no unit is lost in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unequal_calls_never_exceed_the_limit_and_lose_nothing() {
    let mut wrongly_refused = 0;
    for seed in 0..120 {
        let clock = ManualClock::default();
        let cache = Cache::new(&clock).slow(seed, seed % 9);
        let mut random = Random::new(seed);
        let (limit, rule) = (20, FixedWindow::per_hour(20));
        let costs: Vec<_> = (0..48).map(|_| 1 + random.below(15)).collect();
        let admitted = race(&cache, &clock, rule, &costs).await;
        assert!(admitted <= limit, "seed {seed}: {admitted}");
        assert_eq!(cache.only(), admitted, "seed {seed}");
        wrongly_refused += u64::from(costs.contains(&1) && admitted < limit);
        // No call is in flight any more, so the rest passes.
        let store = node(&cache, &clock);
        for left in (admitted..limit).rev() {
            let decision = acquire(&store, &rule, 1).await.unwrap();
            assert_eq!(decision.remaining(), Some(left - admitted), "seed {seed}");
        }
        assert!(!acquire(&store, &rule, 1).await.unwrap().is_admitted());
    }
    // Calls can be refused wrongly, as documented.
    assert!(wrongly_refused > 0);
}

/// Reads, decides, and adds if there is room, as many limiters do.
async fn get_then_set(cache: &Cache, limit: u64) -> Result<bool, StoreError> {
    let counter: Box<[u8]> = b"window"[..].into();
    let total = cache.read(std::slice::from_ref(&counter)).await?[0];
    if total >= limit {
        return Ok(false);
    }
    let hour = std::time::Duration::from_secs(3600);
    cache.add(&counter, 1, hour, &[]).await?;
    Ok(true)
}

/// With equal delays, get-then-set admits more than the limit, and set-then-get never does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_then_set_loses_counts_and_set_then_get_does_not() {
    let clock = ManualClock::default();
    let (limit, mut beyond) = (10, 0);
    for seed in 0..20 {
        let cache = Cache::new(&clock).slow(seed, 8);
        let passed = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let (cache, passed) = (cache.clone(), Arc::clone(&passed));
                tokio::spawn(async move {
                    let passes = get_then_set(&cache, limit).await.unwrap();
                    passed.fetch_add(u64::from(passes), Ordering::Relaxed);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        beyond += passed.load(Ordering::Relaxed) - limit;

        let cache = Cache::new(&clock).slow(seed, 8);
        let rule = FixedWindow::per_hour(limit);
        assert_eq!(
            race(&cache, &clock, rule, &[1; 64]).await,
            limit,
            "seed {seed}"
        );
    }
    assert!(
        beyond > 20,
        "get-then-set admitted only {beyond} above its limit"
    );
}

/// Several asks are charged together or not at all, for any interleaving.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_asks_are_spent_together_or_not_at_all() {
    for seed in 0..40 {
        let clock = ManualClock::default();
        let cache = Cache::new(&clock).slow(seed, seed % 7);
        let nodes: Vec<Node<FixedWindow>> = (0..3).map(|_| node(&cache, &clock)).collect();
        let [few, many] = [4, 30].map(FixedWindow::per_hour);
        let tasks: Vec<_> = (0..24)
            .map(|n| {
                let node = nodes[n % nodes.len()].clone();
                tokio::spawn(async move {
                    // In both orders.
                    let mut asks = [
                        ask(&many, Key::from("many"), 1),
                        ask(&few, Key::from("few"), 1),
                    ];
                    if n % 2 == 0 {
                        asks.reverse();
                    }
                    let decisions = node.acquire(&asks).await.unwrap();
                    let charges = decisions
                        .as_slice()
                        .iter()
                        .filter_map(|one| { *one }.take_charge());
                    assert!([0, 2].contains(&charges.count()), "{decisions:?}");
                    u64::from(decisions.is_admitted())
                })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap();
        }
        // A call may be refused by the other's charge before that is settled back, but never more
        // than fits is admitted.
        assert!((1..=4).contains(&admitted), "seed {seed}: {admitted}");
        let totals: Vec<_> = cache
            .counters()
            .into_values()
            .filter(|total| *total > 0)
            .collect();
        assert_eq!(totals, [admitted; 2], "seed {seed}");
    }
}

/// Calls of different keys or policies share no counters.
#[tokio::test]
async fn keys_and_policies_share_no_counters() {
    let clock = ManualClock::default();
    let store: Node<FixedWindow> = node(&Cache::new(&clock), &clock);
    let rule = FixedWindow::per_hour(1);
    let policies = ["a", "a:1h@490896", "a:1h", ""]
        .map(|name| Policy::try_new(name).unwrap_or_else(|_| Policy::new("b")));
    for policy in &policies {
        for key in ["x", "y", "x:a"] {
            let ask = tollgate::store::driver::Ask::new(policy, &rule, key.into(), Cost::ONE);
            let decision = store.acquire(&[ask]).await.map(only).unwrap();
            assert!(decision.is_admitted(), "{} {key}", policy.name());
        }
    }
}
