//! Resets while something of the key is under way.

use tollgate::{
    Policy,
    key::Key,
    store::{Store, SyncConfig, driver::Ask},
};

use crate::synced::nodes::{DELAY, Fleet, PERIOD, acquire, bucket, spent, units};

/// Units that are under way during a reset count once, as dropped: they may be in the store before
/// it or after it. Their answer is none for the account that a call makes after the reset.
#[tokio::test(start_paused = true)]
async fn units_under_way_are_counted_once() {
    // The store decides a call of a new key, and calls of several keys wait for the states.
    for others in 0..2 {
        let fleet = Fleet::new();
        let rule = bucket(100);
        let (node, _) = fleet.node(SyncConfig::new().max_unsynced(100).nodes(2));
        acquire(&node, &rule, "alice", 60).await.unwrap();
        tokio::time::sleep(DELAY / 5).await;
        assert_eq!(node.stats().unsynced, 60, "they are under way");
        let (policy, key) = (Policy::new("api"), Key::from("alice"));
        let ask = |name: &'static str| Ask::new(&policy, &rule, Key::from(name), units(1));
        let asks = [ask("alice"), ask("bob")];
        let (done, decisions) =
            tokio::join!(node.reset(&policy, &key), node.acquire(&asks[..=others]));
        done.unwrap();
        assert!(decisions.unwrap().is_admitted());
        tokio::time::sleep(5 * PERIOD).await;
        let stats = node.stats();
        assert_eq!((stats.dropped, stats.unsynced), (60, 0));
        let (in_store, pushed) = [(1, 0), (0, 2)][others];
        assert_eq!((stats.in_store, stats.pushed), (in_store, pushed));
        let in_store = spent(&fleet.server(), &rule, "alice").await;
        let decision = acquire(&node, &rule, "alice", 1).await.unwrap();
        assert_eq!(decision.remaining(), Some(100 - in_store - 1));
    }
}
