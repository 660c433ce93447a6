//! Calls that the store decides, because the number of nodes is not known yet, do not overlap with
//! decisions of this node.

use tollgate::store::{StoreExt, SyncConfig};

use crate::synced::nodes::{DELAY, Fleet, PERIOD, acquire, bucket};

/// One node and its limit: the number of nodes becomes known while calls are under way in the
/// store.
#[tokio::test(start_paused = true)]
async fn calls_in_the_store_are_waited_for_when_nodes_are_counted() {
    let fleet = Fleet::new();
    let node = fleet
        .reliable()
        .synced(SyncConfig::new().overshoot_percent(100).period(PERIOD));
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..400 {
        let node = node.clone();
        calls.spawn(async move {
            tokio::time::sleep(DELAY * n / 10).await;
            let decision = acquire(&node, &bucket(100), "alice", 1).await.unwrap();
            decision.is_admitted()
        });
    }
    let admitted = calls.join_all().await.into_iter();
    let admitted = admitted.filter(|admitted| *admitted).count();
    let stats = node.stats();
    assert_eq!(admitted, 100, "{stats:?}");
    assert!(
        stats.nodes == 1 && stats.in_store > 5 && stats.admitted > 5,
        "{stats:?}"
    );
}
