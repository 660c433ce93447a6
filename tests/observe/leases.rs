//! Counters of leases, moved by calls.

use std::time::Duration;

use metrics_util::debugging::DebuggingRecorder;
use tollgate::{
    Cost, Policy, TokenBucket,
    observe::Publish,
    store::{
        LeaseConfig, Store, StoreExt,
        driver::{Ask, Settlement, Transactional},
    },
    testing::{Fault, Faulty},
    time::ManualClock,
};

use crate::{
    common::map_store::MapStore,
    metrics::{Values, values},
};

fn published(store: &impl Publish) -> Values {
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, || store.publish("api"));
    values(&recorder.snapshotter())
}

/// Each counter is moved by a call that is made for it. The wrapped store is published too.
#[tokio::test]
async fn each_counter_of_leases_is_moved_by_a_call() {
    let clock = ManualClock::default();
    let states = Transactional::with_clock(MapStore::default(), clock.clone());
    let faulty = Faulty::new(states);
    let faults = faulty.faults();
    let config = LeaseConfig::new().duration(Duration::from_millis(100));
    let store = faulty
        .timeout(Duration::from_secs(60))
        // One key in each of the parts of the memory.
        .leased(config.keys(1).seed(1).clock(clock.clone()));
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_second(1000));
    let ask = |key: u64| Ask::new(&policy, &rule, key.into(), Cost::ONE);
    let of = |name: &str| -> u64 {
        let values = published(&store);
        values[&format!("tollgate_leases_{name}{{store=api}}")]
            .parse()
            .unwrap()
    };
    let acquire = async |key: u64| store.acquire(&[ask(key)]).await;

    // Cold: three calls to the store. The second one makes the key known. The third one asks for
    // two units, one of which stays.
    for keys in [0, 1, 1] {
        assert!(acquire(0).await.unwrap().is_admitted());
        assert_eq!(of("keys"), keys);
    }
    assert_eq!(of("asked_total"), 3);
    assert_eq!([of("granted_units_total"), of("spent_units_total")], [4, 3]);
    assert_eq!([of("left_units"), of("admitted_total")], [1, 0]);
    let paid = acquire(0).await.unwrap();
    assert_eq!([of("left_units"), of("admitted_total")], [0, 1]);

    // A refund stays here, and a reset loses it.
    let charge = { paid.as_slice()[0] }.take_charge().unwrap();
    let settlement = Settlement::new(&policy, &rule, 0.into(), charge, 0).unwrap();
    store.settle(vec![settlement]).await.unwrap();
    assert_eq!([of("left_units"), of("spent_units_total")], [1, 3]);
    store.reset(&policy, &0.into()).await.unwrap();
    assert_eq!([of("left_units"), of("lost_units_total")], [0, 1]);

    // The key begins anew. Units that are left at the end of the hold expire.
    for _ in 0..2 {
        assert!(acquire(0).await.unwrap().is_admitted());
    }
    let left = of("left_units");
    assert!(left > 0);
    clock.advance(Duration::from_secs(1));
    assert!(acquire(0).await.unwrap().is_admitted());
    assert_eq!(of("expired_units_total"), left);

    // A failure, and the refusals after one of the store.
    faults.script([Some(Fault::Unavailable)]);
    clock.advance(Duration::from_secs(1));
    assert!(acquire(0).await.is_err());
    assert_eq!(of("failed_total"), 1);
    let mut refused = 0;
    for _ in 0..2000 {
        refused += u64::from(!acquire(0).await.unwrap().is_admitted());
    }
    assert!(refused > 100);
    assert!((1..=refused).contains(&of("refused_total")));

    // More keys than there is room for.
    for key in 1..300 {
        for _ in 0..2 {
            assert!(acquire(key).await.unwrap().is_admitted());
        }
    }
    assert!((2..=64).contains(&of("keys")));
    assert!(of("over_capacity_total") > 300 - 64 - 1);

    let found = published(&store);
    assert!(found.contains_key("tollgate_store_timeouts_total{store=api}"));
    let stats = store.stats();
    let sum = stats.spent + stats.left + stats.expired + stats.returned + stats.lost;
    assert_eq!(stats.granted, sum, "{stats:?}");
}
