//! A node that dies takes nothing with it: from the end of its leases on, its units count as spent,
//! and as nothing else.

use std::time::Duration;

use support::Random;
use tollgate::{
    AnyRule, Cost, Policy,
    algorithm::FleetRule,
    store::{
        LeaseConfig, Store,
        driver::{Ask, Transactional},
    },
    time::ManualClock,
};

use crate::leases::{map_store::MapStore, shared::node};

const RULES: [&str; 5] = [
    "token-bucket 100/1s burst=150",
    "fixed-window 100/1s",
    "sliding-window 100/1s slices=4",
    "sliding-log 100/1s",
    "token-bucket 100/1s & fixed-window 1000/1m",
];

/// The grants of a node, each with its instant, as a server sees them that records what it was
/// charged.
#[tokio::test]
async fn the_leases_of_a_dead_node_count_as_spent() {
    let (hold, mut unspent) = (Duration::from_millis(50), 0);
    for (rule, seed) in RULES
        .iter()
        .flat_map(|rule| (0..20).map(move |n| (rule, n)))
    {
        let rule: AnyRule = rule.parse().unwrap();
        let (clock, policy) = (ManualClock::default(), Policy::new("api"));
        clock.advance(Duration::from_secs(1_000_000));
        let [with_leases, spent] = [MapStore::default(), MapStore::default()];
        let dies = node(
            &with_leases,
            &clock,
            LeaseConfig::new().duration(hold).seed(seed),
        );
        let reference = Transactional::with_clock(spent.clone(), clock.clone());
        let held = rule.tightened(hold, 1).unwrap();
        let mut random = Random::new(seed);
        let mut granted = 0;
        for _ in 0..60 {
            let ask = Ask::new(&policy, &rule, "alice".into(), Cost::ONE);
            let _ = dies.acquire(&[ask]).await.unwrap();
            // A request ahead is answered before time goes on.
            tokio::task::yield_now().await;
            // All units that were granted since are spent on the other server at the same instant.
            let more = dies.stats().granted - granted;
            granted += more;
            if let Some(cost) = Cost::new(more) {
                let ask = Ask::new(&policy, &held, "alice".into(), cost);
                assert!(
                    reference.acquire(&[ask]).await.unwrap().is_admitted(),
                    "{rule}"
                );
            }
            clock.advance(Duration::from_micros(random.below(3_000)));
        }
        unspent += dies.stats().left;
        drop(dies);
        let survives = Transactional::with_clock(with_leases, clock.clone());
        for _ in 0..200 {
            let cost = Cost::new(1 + random.below(20)).unwrap();
            let ask = Ask::new(&policy, &held, "alice".into(), cost);
            let [a, b] = [&survives, &reference].map(|server| server.acquire(&[ask]));
            let (a, b) = (a.await.unwrap(), b.await.unwrap());
            assert_eq!(a.as_slice(), b.as_slice(), "{rule}, seed {seed}");
            clock.advance(Duration::from_micros(random.below(30_000)));
        }
    }
    assert!(unspent > 50, "{unspent}");
}
