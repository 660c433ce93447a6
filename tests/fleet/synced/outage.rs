//! B6: a node that is cut off goes on by its share of the limit, and pushes to the store
//! afterwards.

use std::{
    future::{Future, IntoFuture, poll_fn},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use tollgate::{
    AnyRule, Cost, FixedWindow, Policy, TokenBucket,
    store::{
        Store, StoreError, StoreExt, SyncConfig,
        driver::{Ask, Transactional},
    },
    testing::{Fault, Faults, Faulty},
};

use crate::{
    common::map_store::MapStore,
    synced::nodes::{DELAY, Fleet, PERIOD, acquire, admits, at_once, bucket, spent},
};

async fn admitted<R, S>(node: &S, rule: &R, calls: u64) -> u64
where
    S: Store<R, Error = StoreError>,
{
    let mut admitted = 0;
    for _ in 0..calls {
        admitted += u64::from(admits(node, rule, "alice", 1).await);
    }
    admitted
}

fn all(faults: &[&Faults], fault: Option<Fault>) {
    for faults in faults {
        match fault {
            Some(fault) => faults.always(fault),
            None => faults.none(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cut_off_nodes_divide_what_remains_and_repay() {
    let fleet = Fleet::new();
    let rule = bucket(100);
    let config = || SyncConfig::new().max_unsynced(10).nodes(2);
    let [(one, a), (other, b)] = [fleet.node(config()), fleet.node(config())];
    // Both have the same part of the traffic.
    for _ in 0..2 {
        for node in [&one, &other] {
            assert_eq!(admitted(node, &rule, 10).await, 10);
            tokio::time::sleep(5 * PERIOD).await;
        }
    }
    // Each pulls what the other one pushed last.
    for node in [&one, &other] {
        assert_eq!(admitted(node, &rule, 1).await, 1);
    }
    tokio::time::sleep(5 * PERIOD).await;
    assert_eq!(spent(&fleet.server(), &rule, "alice").await, 42);
    all(&[&a, &b], Some(Fault::Unavailable));
    tokio::time::sleep(4 * PERIOD).await;
    let (first, second) = (
        admitted(&one, &rule, 100).await,
        admitted(&other, &rule, 100).await,
    );
    let together = first + second;
    assert!((50..=58 + 10).contains(&together), "{first} and {second}");
    assert!(first > 15 && second > 15, "{first} and {second}");
    let stats = one.stats();
    assert!(stats.offline >= 90 && stats.failed > 0, "{stats:?}");
    all(&[&a, &b], None);
    tokio::time::sleep(4 * PERIOD).await;
    assert_eq!((one.stats().unsynced, other.stats().unsynced), (0, 0));
    let store = fleet.server::<TokenBucket>();
    assert_eq!(
        spent(&store, &rule, "alice").await,
        (42 + together).min(100)
    );
    // It may not have pulled yet what the other one pushed last.
    let left = 100u64.saturating_sub(42 + together);
    let more = admitted(&one, &rule, 100).await;
    assert!((left..=left + 10).contains(&more), "{more} of {left}");
}

#[tokio::test(start_paused = true)]
async fn a_new_key_has_a_part_of_its_limit_in_an_outage() {
    let fleet = Fleet::new();
    let rule = bucket(100);
    let (node, faults) = fleet.node(SyncConfig::new().max_unsynced(10).nodes(4));
    faults.always(Fault::Unavailable);
    assert_eq!(admitted(&node, &rule, 100).await, 25);
    faults.none();
    tokio::time::sleep(4 * PERIOD).await;
    assert_eq!(spent(&fleet.server(), &rule, "alice").await, 25);
}

/// Windows of which each request chooses one: what a node admits alone under any of them is spent
/// of its part of all of them.
#[tokio::test(start_paused = true)]
async fn rules_that_take_turns_in_an_outage_share_one_part() {
    let fleet = Fleet::new();
    let (large, small) = (FixedWindow::per_day(100), FixedWindow::per_day(50));
    let config = || SyncConfig::new().max_unsynced(5).nodes(4);
    // The smaller limit is used up in the last case, and a part of what remains of the other left.
    for (key, used, most) in [("alice", 0, 25), ("bob", 40, 15), ("carol", 60, 10)] {
        let (node, faults) = fleet.node(config());
        for _ in 0..used {
            acquire(&node, &large, key, 1).await.unwrap();
        }
        tokio::time::sleep(PERIOD * 5).await;
        assert_eq!(spent(&fleet.server(), &large, key).await, used);
        faults.always(Fault::Unavailable);
        let mut admitted = 0;
        for n in 0..200 {
            let rule = [&small, &large][n % 2];
            admitted += u64::from(admits(&node, rule, key, 1).await);
        }
        // It admits up to five before it knows of the outage.
        assert!(
            (most - 2..=most + 5).contains(&admitted),
            "{key}: {admitted}"
        );
    }
}

/// The refusals of an outage end with it, also for a cache of refusals around the node.
#[tokio::test(start_paused = true)]
async fn nobody_remembers_the_refusals_of_an_outage() {
    let fleet = Fleet::new();
    let rule = FixedWindow::per_day(100);
    let (node, faults) = fleet.node(SyncConfig::new().max_unsynced(10).nodes(4));
    let node = node.remember_refusals().clock(fleet.clock);
    faults.always(Fault::Unavailable);
    assert_eq!(admitted(&node, &rule, 100).await, 25);
    faults.none();
    tokio::time::sleep(4 * PERIOD).await;
    assert_eq!(admitted(&node, &rule, 100).await, 75);
}

/// Keys that are first called while others have found out that the store is gone are told
/// afterwards, too.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_new_in_an_outage_is_pushed_afterwards() {
    let fleet = Fleet::new();
    let rule = bucket(100);
    let (node, faults) = fleet.node(SyncConfig::new().max_unsynced(10).nodes(4));
    faults.always(Fault::Unavailable);
    for key in ["alice", "bob"] {
        for _ in 0..5 {
            assert!(admits(&node, &rule, key, 1).await);
        }
    }
    faults.none();
    tokio::time::sleep(4 * PERIOD).await;
    for key in ["alice", "bob"] {
        assert_eq!(spent(&fleet.server(), &rule, key).await, 5, "{key}");
    }
    assert_eq!(node.stats().unsynced, 0);
}

/// Counts the calls that are woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Many keys wait for a store that is down. The task tells them in parts, so that it does not hold
/// a thread of the runtime for all of them.
#[tokio::test(start_paused = true)]
async fn an_outage_is_told_to_many_keys_in_parts() {
    const KEYS: u64 = 5000;
    let fleet = Fleet::new();
    let rule = bucket(100);
    let (node, faults) = fleet.node(SyncConfig::new().max_unsynced(10).nodes(4));
    faults.always(Fault::Unavailable);
    let policy = Policy::new("api");
    let call = |key: u64| {
        let ask = Ask::new(&policy, &rule, key.into(), Cost::ONE);
        Box::pin(node.acquire(&[ask]).into_future())
    };
    let mut calls: Vec<_> = (0..KEYS).map(call).collect();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    // The budget of a task would end the polls early.
    let all_wait = poll_fn(|_| {
        let cx = &mut Context::from_waker(&waker);
        let mut polls = calls.iter_mut().map(|call| call.as_mut().poll(cx));
        Poll::Ready(polls.all(|poll| poll.is_pending()))
    });
    assert!(tokio::task::unconstrained(all_wait).await);
    let (mut before, mut most) = (0, 0);
    while before < KEYS as usize {
        tokio::task::yield_now().await;
        let now = woken.0.load(Ordering::Relaxed);
        (before, most) = (now, most.max(now - before));
    }
    assert!(most <= 1000, "{most} keys in one turn");
    for call in calls {
        assert!(call.await.unwrap().is_admitted());
    }
    let new = at_once(&node, &rule, "alice", 1);
    assert!(new.is_some_and(|decision| decision.is_admitted()));
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_part_fails_and_the_wrapper_decides() {
    let fleet = Fleet::new();
    let rule = TokenBucket::per_day(3);
    let (node, faults) = fleet.node(SyncConfig::new().max_unsynced(1).nodes(4));
    faults.always(Fault::Unavailable);
    let error = acquire(&node, &rule, "alice", 1).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let again = acquire(&node, &rule, "alice", 1).await.unwrap_err();
    assert!(again.is_unavailable(), "{again}");
    let open = node.fail_open();
    let policy = Policy::new("api");
    let ask = Ask::new(&policy, &rule, "alice".into(), Cost::ONE);
    let Ok(decisions) = open.acquire(&[ask]).await;
    assert!(decisions.is_admitted());
}

/// The fallback that repays: the store decides while it can be reached.
#[tokio::test(start_paused = true)]
async fn an_overshoot_of_zero_is_a_fallback_that_repays() {
    let fleet = Fleet::new();
    let rule = bucket(100);
    let (node, faults) = fleet.node(SyncConfig::new().overshoot_percent(0).nodes(2));
    assert_eq!(admitted(&node, &rule, 40).await, 40);
    assert_eq!((node.stats().in_store, node.stats().syncs), (40, 0));
    faults.always(Fault::Unavailable);
    // An unknown key: half of the whole limit.
    assert_eq!(admitted(&node, &rule, 100).await, 50);
    faults.none();
    tokio::time::sleep(4 * PERIOD).await;
    let store = fleet.server();
    assert_eq!(spent(&store, &rule, "alice").await, 90);
    assert_eq!(admitted(&node, &rule, 100).await, 10);
    assert_eq!(spent(&store, &rule, "alice").await, 100);
}

/// A store that cannot take in units decides each call. A key has one share of its limit at most,
/// until a node has found that out.
#[tokio::test(start_paused = true)]
async fn a_store_that_takes_in_no_units_leaves_one_share_in_an_outage() {
    for config in [
        SyncConfig::new().overshoot_percent(0),
        SyncConfig::new().max_unsynced(10),
    ] {
        let (clock, rule) = (crate::clock(), bucket(100));
        let server = Faulty::new(Transactional::with_clock(MapStore::default(), clock));
        let faults = server.faults();
        let node = server.synced(config.nodes(2).period(PERIOD).clock(clock));
        faults.always(Fault::Unavailable);
        let mut admitted = 0;
        for _ in 0..1000 {
            match acquire(&node, &rule, "alice", 1).await {
                Ok(decision) => admitted += u64::from(decision.is_admitted()),
                Err(error) => assert!(error.is_unavailable(), "{error}"),
            }
            tokio::time::sleep(PERIOD / 50).await;
        }
        assert!(admitted <= 50, "{admitted}");
        faults.none();
        let decision = acquire(&node, &rule, "alice", 1).await.unwrap();
        assert_eq!(decision.remaining(), Some(99));
    }
}

/// A rule that cannot be pushed later belongs to the inner store alone: a failure is an error, and
/// the next call is asked again.
#[tokio::test(start_paused = true)]
async fn a_rule_that_cannot_be_pushed_is_not_decided_alone() {
    let fleet = Fleet::new();
    let (node, faults) = fleet.node(SyncConfig::new().overshoot_percent(0).nodes(2));
    let rule: AnyRule = "sliding-log 10/d".parse().unwrap();
    faults.always(Fault::Unavailable);
    for _ in 0..3 {
        assert!(acquire(&node, &rule, "alice", 1).await.is_err());
    }
    faults.none();
    for n in 0..12 {
        assert_eq!(admits(&node, &rule, "alice", 1).await, n < 10);
    }
    tokio::time::sleep(4 * PERIOD).await;
    let stats = node.stats();
    assert_eq!(
        (stats.offline, stats.syncs, stats.keys),
        (0, 0, 0),
        "{stats:?}"
    );
}

/// Calls that are under way in a store that goes silent do not keep each other waiting.
#[tokio::test(start_paused = true)]
async fn all_calls_in_a_silent_store_are_decided_here() {
    let fleet = Fleet::new();
    let rule = bucket(100);
    let server = fleet.server::<TokenBucket>();
    let faults = server.faults();
    let node = server.timeout(Duration::from_millis(50)).synced(
        SyncConfig::new()
            .overshoot_percent(0)
            .nodes(2)
            .period(PERIOD),
    );
    faults.always(Fault::Silent);
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..20 {
        let node = node.clone();
        calls.spawn(async move {
            tokio::time::sleep(Duration::from_millis(n)).await;
            admits(&node, &bucket(100), "alice", 1).await
        });
    }
    assert!(calls.join_all().await.into_iter().all(|admitted| admitted));
    let policy = Policy::new("api");
    let look = node.look(&[Ask::new(&policy, &rule, "alice".into(), Cost::ONE)]);
    assert_eq!(look.await.unwrap().as_slice()[0].remaining(), Some(30));
}

#[tokio::test(start_paused = true)]
async fn windows_are_divided_too() {
    let fleet = Fleet::new();
    let rules: [AnyRule; 3] = [
        FixedWindow::per_day(90).into(),
        "sliding-window 90/1d slices=4".parse().unwrap(),
        "token-bucket 90/1d & fixed-window 90/1d".parse().unwrap(),
    ];
    for (n, rule) in rules.into_iter().enumerate() {
        let (node, faults) = fleet.node(SyncConfig::new().max_unsynced(5).nodes(3));
        let key = format!("k{n}");
        faults.always(Fault::Unavailable);
        let mut admitted = 0;
        for _ in 0..90 {
            admitted += u64::from(admits(&node, &rule, &key, 1).await);
        }
        assert_eq!(admitted, 30, "{rule}");
        faults.none();
        tokio::time::sleep(4 * PERIOD).await;
        assert_eq!(spent(&fleet.server(), &rule, &key).await, 30, "{rule}");
    }
}

/// One caller, and an answer that never comes: the deadline inside ends the wait, and the node goes
/// on alone.
#[tokio::test(start_paused = true)]
async fn a_lone_call_on_a_silent_store_is_decided_here() {
    let fleet = Fleet::new();
    let rule = bucket(100);
    let server = fleet.server::<TokenBucket>();
    let faults = server.faults();
    let node = server
        .timeout(Duration::from_millis(50))
        .synced(SyncConfig::new().max_unsynced(10).nodes(2).period(PERIOD));
    faults.always(Fault::Silent);
    let start = tokio::time::Instant::now();
    assert!(admits(&node, &rule, "alice", 1).await);
    assert!(start.elapsed() < Duration::from_millis(100));
}

/// The runtime of the task that pushes to the store ends in the middle of a call. Another one takes
/// it up, and nothing is lost or counted twice.
#[test]
fn a_runtime_that_ends_is_followed_by_another_one() {
    let runtime = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap()
    };
    let first = runtime();
    let (fleet, node, rule) = first.block_on(async {
        let (fleet, rule) = (Fleet::new(), bucket(1000));
        let (node, _) = fleet.node(SyncConfig::new().max_unsynced(10).nodes(2));
        assert!(admits(&node, &rule, "alice", 10).await);
        // The delta is under way.
        let waiting = acquire(&node, &rule, "alice", 1);
        assert!(tokio::time::timeout(DELAY / 2, waiting).await.is_err());
        (fleet, node, rule)
    });
    drop(first);
    let second = async {
        for _ in 0..20 {
            assert!(admits(&node, &rule, "alice", 1).await);
        }
        assert_eq!(node.flush(PERIOD * 10).await, 0);
        assert_eq!(spent(&fleet.server(), &rule, "alice").await, 30);
    };
    let deadline = async { tokio::time::timeout(Duration::from_secs(30), second).await };
    assert!(runtime().block_on(deadline).is_ok(), "calls wait for ever");
}

/// A lost answer leaves it open whether the store has taken a delta in. It is pushed again, and
/// counts once.
#[tokio::test(start_paused = true)]
async fn lost_answers_count_once() {
    let fleet = Fleet::new();
    let rule = bucket(10_000);
    let (node, faults) = fleet.node(SyncConfig::new().max_unsynced(50).nodes(2));
    faults.by_chance(3, 3, [Fault::Lost, Fault::Unavailable]);
    let mut admitted = 0;
    for n in 0..1000 {
        admitted += u64::from(admits(&node, &rule, "alice", 1).await);
        if n % 10 == 0 {
            tokio::time::sleep(DELAY).await;
        }
    }
    faults.none();
    tokio::time::sleep(PERIOD * 10).await;
    assert!(node.stats().failed >= 3, "{:?}", node.stats());
    assert_eq!(node.stats().unsynced, 0);
    assert_eq!(spent(&fleet.server(), &rule, "alice").await, admitted);
}
