//! Calls that the store decides, because there is no room or the number of nodes is not known, do not overlap with decisions of this node.

use tollgate::store::SyncConfig;

use crate::nodes::{DELAY, Fleet, PERIOD, acquire, at_once, bucket};

/// One node and its limit: the key gets room while calls of it are under way in the store.
#[tokio::test(start_paused = true)]
async fn a_key_that_gets_room_waits_for_its_calls_in_the_store() {
    let fleet = Fleet::new();
    // One key for each of 64 parts.
    let config = SyncConfig::new().most_ahead(20).nodes(1).keys(1).seed(1);
    let (node, _) = fleet.node(config);
    let rule = bucket(20);
    // All keys of the same part as "alice" are crowded as long as another key is known.
    let mut crowding = None;
    for n in 0.. {
        let key = format!("k{n}");
        acquire(&node, &rule, &key, 1).await.unwrap();
        let before = node.stats().crowded;
        let _ = at_once(&node, &rule, "alice", 1);
        if node.stats().crowded > before {
            crowding = Some(key);
            break;
        }
        tokio::time::sleep(PERIOD * 25).await;
    }
    assert!(crowding.is_some());
    let mut calls = tokio::task::JoinSet::new();
    // Longer than a key is known after its last call.
    for n in 0..4000 {
        let node = node.clone();
        calls.spawn(async move {
            tokio::time::sleep(DELAY * n / 10).await;
            acquire(&node, &bucket(20), "alice", 1)
                .await
                .unwrap()
                .is_admitted()
        });
    }
    let admitted = calls
        .join_all()
        .await
        .into_iter()
        .filter(|admitted| *admitted)
        .count();
    assert!(admitted <= 20, "{admitted} of 20");
    assert!(node.stats().admitted > 0);
}
