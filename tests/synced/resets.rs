//! Resets while something of the key is under way.

use tollgate::{
    Policy, TokenBucket,
    key::Key,
    store::{Store, SyncConfig},
};

use crate::nodes::{DELAY, Fleet, Node, PERIOD, acquire, bucket, spent};

async fn reset(node: &Node<TokenBucket>) {
    let policy = Policy::new("api");
    node.reset(&policy, &Key::from("alice")).await.unwrap();
}

/// Has a node tell 60 units, and returns while they are under way.
async fn telling(node: &Node<TokenBucket>, rule: &TokenBucket) {
    acquire(node, rule, "alice", 60).await.unwrap();
    tokio::time::sleep(DELAY / 5).await;
    assert_eq!(node.stats().unsynced, 60, "they are under way");
}

/// Units that are under way during a reset count once, as dropped: they may be in the store before it or after it.
#[tokio::test(start_paused = true)]
async fn units_under_way_are_counted_once() {
    let fleet = Fleet::new();
    let rule = bucket(100);
    let (node, _) = fleet.node(SyncConfig::new().most_ahead(100).nodes(2));
    telling(&node, &rule).await;
    reset(&node).await;
    tokio::time::sleep(5 * PERIOD).await;
    let stats = node.stats();
    assert_eq!((stats.dropped, stats.told, stats.unsynced), (60, 0, 0));
}

/// The answer to what was sent before a reset is none for the account after it.
#[tokio::test(start_paused = true)]
async fn an_answer_of_the_time_before_is_thrown_away() {
    let fleet = Fleet::new();
    let rule = bucket(100);
    let (node, _) = fleet.node(SyncConfig::new().most_ahead(100).nodes(2));
    telling(&node, &rule).await;
    let (decision, ()) = tokio::join!(acquire(&node, &rule, "alice", 1), reset(&node));
    // It was called before the reset, and waited until it was over.
    assert!(decision.unwrap().is_admitted());
    tokio::time::sleep(5 * PERIOD).await;
    let in_store = spent(&fleet.server(), &rule, "alice").await;
    let decision = acquire(&node, &rule, "alice", 1).await.unwrap();
    assert_eq!(decision.remaining(), Some(100 - in_store - 1));
    let stats = node.stats();
    assert_eq!(stats.told + stats.unsynced + stats.dropped, 62);
}

/// A call that the store decides is still known after a reset: nothing is admitted here before it has ended.
#[tokio::test(start_paused = true)]
async fn a_call_in_the_store_outlives_a_reset() {
    let fleet = Fleet::new();
    let rule = bucket(100);
    let (node, _) = fleet.node(SyncConfig::new().most_ahead(10).nodes(2));
    acquire(&node, &rule, "alice", 1).await.unwrap();
    tokio::time::sleep(5 * PERIOD).await;
    let dear = acquire(&node, &rule, "alice", 50);
    let policy = Policy::new("api");
    let later = async {
        // The reset is sent while the dear call is under way; another call comes at once.
        tokio::time::sleep(DELAY / 5).await;
        let key = Key::from("alice");
        let (done, cheap) =
            tokio::join!(node.reset(&policy, &key), acquire(&node, &rule, "alice", 1));
        done.unwrap();
        cheap.unwrap()
    };
    let (dear, cheap) = tokio::join!(dear, later);
    assert!(dear.unwrap().is_admitted() && cheap.is_admitted());
    tokio::time::sleep(5 * PERIOD).await;
    assert_eq!(node.stats().unsynced, 0);
    let in_store = spent(&fleet.server(), &rule, "alice").await;
    let decision = acquire(&node, &rule, "alice", 1).await.unwrap();
    assert_eq!(decision.remaining(), Some(100 - in_store - 1));
}
