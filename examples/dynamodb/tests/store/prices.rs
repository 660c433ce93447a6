//! The cost of a decision in capacity units. The README has these numbers.

use std::time::Duration;

use tollgate::{
    FixedWindow, TokenBucket,
    algorithm::Algorithm,
    key::Key,
    store::{
        LeaseConfig, Store, StoreError, StoreExt,
        driver::{CasStore, CounterStore},
    },
};
use tollgate_dynamodb::{Capacity, Dynamo};

use crate::common::{Dynalite, acquire, at_once, dynamo};

const CALLS: u64 = 40;

/// Returns what a number of decisions costs.
async fn price<Rule: Algorithm>(
    dynamo: &Dynamo,
    store: &impl Store<Rule, Error = StoreError>,
    rule: &Rule,
    key: u64,
    calls: u64,
) -> Capacity {
    let before = dynamo.capacity();
    for _ in 0..calls {
        acquire(store, rule, Key::from(key)).await.unwrap();
    }
    let after = dynamo.capacity();
    Capacity {
        read: after.read - before.read,
        write: after.write - before.write,
    }
}

#[tokio::test]
async fn a_decision_has_the_price_that_is_told() {
    let server = Dynalite::start();
    let dynamo = dynamo(&server).await;
    let rule = at_once(CALLS);
    let store = CasStore::<_, TokenBucket>::new(dynamo.clone());
    // Each admission is a write. The state is read once, and again if another process has written
    // it.
    let admitted = price(&dynamo, &store, &rule, 1, CALLS).await;
    assert_eq!([admitted.read, admitted.write], [1.0, CALLS as f64]);
    // Each refusal is a read.
    let refused = price(&dynamo, &store, &rule, 1, CALLS).await;
    assert_eq!([refused.read, refused.write], [CALLS as f64, 0.0]);
    // Processes that take turns read before each write.
    let rule = at_once(2 * CALLS);
    let other = CasStore::<_, TokenBucket>::new(dynamo.clone());
    let mut in_turns = [0.0, 0.0];
    for _ in 0..CALLS {
        for node in [&store, &other] {
            let call = price(&dynamo, node, &rule, 4, 1).await;
            in_turns = [in_turns[0] + call.read, in_turns[1] + call.write];
        }
    }
    let calls = 2.0 * CALLS as f64;
    assert_eq!(in_turns, [calls, calls]);

    // A window by counters is a write.
    let window: FixedWindow = "fixed-window 1000/1d".parse().unwrap();
    let counters = CounterStore::<_, FixedWindow>::new(dynamo.clone());
    let counted = price(&dynamo, &counters, &window, 2, CALLS).await;
    assert_eq!([counted.read, counted.write], [0.0, CALLS as f64]);

    // With leases, most decisions cost nothing.
    let busy = TokenBucket::per_second(100_000);
    let config = LeaseConfig::new()
        .duration(Duration::from_millis(500))
        .nodes(1);
    let leased = store.clone().leased(config);
    let calls = 2_000;
    let in_leases = price(&dynamo, &leased, &busy, 3, calls).await;
    assert!(in_leases.write > 0.0);
    assert!(20.0 * in_leases.write < calls as f64, "{in_leases:?}");
    assert!(20.0 * in_leases.read < calls as f64, "{in_leases:?}");
}
