//! One node on a server that answers at once.

use std::time::Duration;

use tollgate::{
    Cost, Policy, TokenBucket,
    store::{LeaseConfig, Store, driver::Ask},
    time::ManualClock,
};

use crate::leases::{map_store::MapStore, shared::node};

#[tokio::test]
async fn most_calls_of_a_hot_key_need_no_round_trip() {
    let clock = ManualClock::default();
    let config = LeaseConfig::new().duration(Duration::from_millis(100));
    let (states, policy) = (MapStore::default(), Policy::new("api"));
    let store = node(&states, &clock, config);
    let rule = TokenBucket::per_second(1000);
    let mut admitted = 0;
    for _ in 0..20_000 {
        let ask = Ask::new(&policy, &rule, "alice".into(), Cost::ONE);
        let decisions = store.acquire(&[ask]).await.unwrap();
        admitted += u64::from(decisions.is_admitted());
        clock.advance(Duration::from_micros(500));
        tokio::task::yield_now().await;
    }
    // 10 seconds at 1000/s, and the burst less what is refilled within the hold.
    let stats = store.stats();
    assert!(
        (10_700..=11_000).contains(&admitted),
        "{admitted} {stats:?}"
    );
    assert!(stats.asked < 20_000 / 20, "{stats:?}");
    assert_eq!(
        stats.granted,
        stats.spent + stats.left + stats.expired + stats.returned + stats.lost,
        "{stats:?}"
    );
}
