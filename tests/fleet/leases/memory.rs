//! Keys whose units have ended take no memory.

use std::time::Duration;

use tokio::{
    runtime::Handle,
    task::yield_now,
    time::{Instant, sleep},
};
use tollgate::{
    Cost, Decision, Policy, TokenBucket,
    key::Key,
    store::{
        LeaseConfig, Leased, Local, LocalBuilder, Store, StoreError, StoreExt,
        driver::{Ask, Settlement},
    },
    testing::Faulty,
    time::TokioClock,
};

use crate::synced::nodes::{Fleet, acquire};

type Node = Leased<Faulty<Local<TokenBucket, TokioClock>>, TokenBucket, TokioClock>;

/// A bucket that is held for a second.
fn rule() -> TokenBucket {
    TokenBucket::per_second(10).burst(100)
}

/// A node whose store answers at once.
fn node() -> Node {
    let clock = TokioClock::new();
    let store = Faulty::new(LocalBuilder::new().clock(clock).build());
    store.leased(LeaseConfig::new().keys(200_000).clock(clock).seed(1))
}

async fn call(node: &Node, policy: &Policy, key: u64) -> Decision {
    let (rule, key) = (rule(), Key::from(key));
    let decisions: Result<_, StoreError> = node
        .acquire(&[Ask::new(policy, &rule, key, Cost::ONE)])
        .await;
    decisions.unwrap().as_slice()[0]
}

/// Calls each key twice, so that it has leases.
async fn spike(node: &Node, keys: u64) {
    let policy = Policy::new("api");
    for key in 0..keys {
        for _ in 0..2 {
            assert!(call(node, &policy, key).await.is_admitted());
        }
    }
    assert_eq!(node.stats().keys, keys);
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Without another call, a few at a time; and then nothing is left that runs.
#[tokio::test(start_paused = true)]
async fn keys_are_forgotten_after_a_spike() {
    const KEYS: u64 = 100_000;
    /// A task looks at so many keys in a millisecond.
    const MOST: u64 = 64 * 32;
    let node = node();
    let begin = Instant::now();
    spike(&node, KEYS).await;
    assert_eq!(tasks(), 1);
    // So long all of them stay.
    sleep(Duration::from_millis(3_990)).await;
    let mut before = KEYS;
    while before > 0 {
        assert!(
            begin.elapsed() < Duration::from_secs(6),
            "{before} are left"
        );
        sleep(Duration::from_millis(10)).await;
        let left = node.stats().keys;
        assert!(before - left <= 12 * MOST, "{left} of {before} are left");
        before = left;
    }
    sleep(Duration::from_secs(2)).await;
    assert_eq!(tasks(), 0);
    // The next keys have a task again.
    spike(&node, 10).await;
    sleep(Duration::from_secs(6)).await;
    assert_eq!((node.stats().keys, tasks()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_the_store() {
    let node = node();
    spike(&node, 100).await;
    let begin = Instant::now();
    yield_now().await;
    assert_eq!(tasks(), 1);
    drop(node);
    yield_now().await;
    yield_now().await;
    assert_eq!((tasks(), begin.elapsed()), (0, Duration::ZERO));
}

/// The runtime of the first keys is shut down; a call on another one lets them be forgotten.
#[test]
fn another_runtime_goes_on() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    let node = runtime().block_on(async {
        let node = node();
        spike(&node, 100).await;
        node
    });
    runtime().block_on(async {
        // This runtime has another clock than the node, by which no units end.
        call(&node, &Policy::new("api"), 1_000_000).await;
        assert_eq!(tasks(), 1);
    });
}

/// A refund of a key that was forgotten begins a lease, which goes as well.
#[tokio::test(start_paused = true)]
async fn what_a_refund_begins_is_forgotten() {
    let (node, policy) = (node(), Policy::new("api"));
    spike(&node, 1).await;
    let charge = call(&node, &policy, 0).await.take_charge().unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!((node.stats().keys, tasks()), (0, 0));
    let (rule, key) = (rule(), Key::from(0_u64));
    let refund = Settlement::new(&policy, &rule, key, charge, 0).unwrap();
    node.settle(vec![refund]).await.unwrap();
    assert_eq!((node.stats().keys, tasks()), (1, 1));
    sleep(Duration::from_secs(10)).await;
    assert_eq!((node.stats().keys, tasks()), (0, 0));
}

/// Keys that are still called stay.
#[tokio::test(start_paused = true)]
async fn keys_that_are_called_stay() {
    const KEYS: u64 = 1_000;
    let fleet = Fleet::new();
    let node = fleet
        .reliable()
        .leased(LeaseConfig::new().clock(TokioClock::new()));
    for key in 0..KEYS {
        for _ in 0..3 {
            acquire(&node, &rule(), &key.to_string(), 1).await.unwrap();
        }
    }
    for _ in 0..100 {
        acquire(&node, &rule(), "alice", 1).await.unwrap();
        sleep(Duration::from_millis(50)).await;
    }
    let stats = node.stats();
    assert_eq!(stats.keys, 1, "{stats:?}");
}
