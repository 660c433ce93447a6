//! Keys whose units have ended take no memory.

use std::time::Duration;

use tollgate::{
    TokenBucket,
    store::{LeaseConfig, StoreExt},
    time::TokioClock,
};

use crate::synced::nodes::{Fleet, acquire};

/// A flood of keys, each called often enough to have leases, is forgotten without another call. Keys that are still called stay.
#[tokio::test(start_paused = true)]
async fn keys_are_forgotten_when_their_units_have_ended() {
    const KEYS: u64 = 1_000;
    let fleet = Fleet::new();
    let node = fleet
        .reliable()
        .leased(LeaseConfig::new().clock(TokioClock::new()));
    // A hold of a second.
    let rule = TokenBucket::per_second(10).burst(100);
    for key in 0..KEYS {
        for _ in 0..3 {
            acquire(&node, &rule, &key.to_string(), 1).await.unwrap();
        }
    }
    for _ in 0..300 {
        acquire(&node, &rule, "alice", 1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let stats = node.stats();
    assert_eq!(stats.keys, 1, "{stats:?}");
}
