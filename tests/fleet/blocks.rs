//! Blocks beside leases and background synchronisation, in both orders: a block holds on every
//! node, or the order is refused.

use std::{sync::Arc, time::Duration};

use tollgate::{
    FixedWindow, Limiter, Policy, RateLimitLayer, TokenBucket,
    algorithm::{Algorithm, Blockable},
    key::Header,
    store::{Blocks, CircuitBreakerConfig, LeaseConfig, Store, StoreError, StoreExt, SyncConfig},
    time::{Clock, TokioClock},
};

use tokio::time::Instant;

use crate::synced::nodes::{Fleet, PERIOD, acquire, admits, at_once, bucket};

const BLOCK: Duration = Duration::from_secs(60);

/// The time after which a node with leases sees a block that another node made.
const OF_LEASES: Duration = Duration::from_secs(1);

fn leases() -> LeaseConfig<TokioClock> {
    LeaseConfig::new().clock(TokioClock::new())
}

fn ahead() -> SyncConfig<TokioClock> {
    let config = SyncConfig::new().max_unsynced(20).nodes(3).period(PERIOD);
    config.clock(TokioClock::new())
}

/// Returns how many of some calls are admitted.
async fn admitted<S>(store: &S, rule: &TokenBucket, calls: u64) -> u64
where
    S: Store<TokenBucket, Error = StoreError>,
{
    let mut admitted = 0;
    for _ in 0..calls {
        admitted += u64::from(admits(store, rule, "mallory", 1).await);
    }
    admitted
}

/// A block that one node makes holds at once there and on a node without the wrapper, and on the
/// other node after the lag, for as long as it was made. A longer one replaces it, and it can be
/// removed.
async fn holds<S, T>((one, other): (Blocks<S>, Blocks<S>), plain: Blocks<T>, lag: Duration)
where
    S: Store<Blockable<TokenBucket>, Error = StoreError>,
    T: Store<Blockable<TokenBucket>, Error = StoreError>,
{
    let (rule, policy) = (bucket(100_000), Policy::new("api"));
    for node in [&one, &other] {
        assert_eq!(admitted(node, &rule, 50).await, 50);
    }
    for blocked in [BLOCK, 2 * BLOCK] {
        let block = one
            .block::<TokenBucket>(&policy, "mallory", blocked)
            .unwrap();
        assert_eq!(block.await.unwrap(), Some(blocked));
        assert_eq!(admitted(&one, &rule, 300).await, 0);
        assert_eq!(admitted(&plain, &rule, 1).await, 0);
        tokio::time::sleep(lag).await;
        assert_eq!(admitted(&other, &rule, 300).await, 0);
        assert_eq!(admitted(&plain, &rule, 300).await, 0);
    }
    let decision = acquire(&plain, &rule, "mallory", 1).await.unwrap();
    assert!(decision.retry_after().unwrap() <= 2 * BLOCK, "{decision:?}");
    tokio::time::sleep(2 * BLOCK).await;
    assert_eq!(admitted(&one, &rule, 30).await, 30);
    assert_eq!(admitted(&other, &rule, 30).await, 30);
    assert_eq!(admitted(&plain, &rule, 30).await, 30);
    let block = one.block::<TokenBucket>(&policy, "mallory", BLOCK).unwrap();
    assert_eq!(block.await.unwrap(), Some(BLOCK));
    other
        .unblock::<TokenBucket>(&policy, "mallory")
        .await
        .unwrap();
    assert_eq!(admitted(&one, &rule, 30).await, 30);
}

#[tokio::test(start_paused = true)]
async fn blocks_outside_hold_on_every_node() {
    let fleet = Fleet::new();
    let node = || fleet.server().leased(leases()).with_blocks();
    holds((node(), node()), fleet.server().with_blocks(), OF_LEASES).await;
    let fleet = Fleet::new();
    let node = || fleet.server().synced(ahead()).with_blocks();
    holds((node(), node()), fleet.server().with_blocks(), PERIOD).await;
}

/// Calls of a busy key look at its block in the background, and see one of another node in time.
#[tokio::test(start_paused = true)]
async fn a_busy_key_needs_no_round_trip() {
    let fleet = Fleet::new();
    let node = || fleet.server().leased(leases()).with_blocks();
    is_busy((node(), node()), OF_LEASES).await;
    let fleet = Fleet::new();
    let node = || fleet.server().synced(ahead()).with_blocks();
    is_busy((node(), node()), PERIOD).await;
}

async fn is_busy<S>((one, other): (Blocks<S>, Blocks<S>), lag: Duration)
where
    S: Store<Blockable<TokenBucket>, Error = StoreError>,
{
    const CALLS: u64 = 5000;
    let (rule, policy) = (bucket(100_000), Policy::new("api"));
    let mut pause = tokio::time::interval(Duration::from_millis(1));
    let mut call = async |node: &Blocks<S>| {
        pause.tick().await;
        match at_once(node, &rule, "mallory", 1) {
            Some(decision) => (1, decision),
            None => (0, acquire(node, &rule, "mallory", 1).await.unwrap()),
        }
    };
    let mut ready = 0;
    for _ in 0..CALLS {
        let (is_ready, decision) = call(&one).await;
        assert!(decision.is_admitted());
        ready += is_ready;
    }
    assert!(ready > CALLS * 9 / 10, "{ready} of {CALLS}");
    let block = other
        .block::<TokenBucket>(&policy, "mallory", BLOCK)
        .unwrap();
    assert_eq!(block.await.unwrap(), Some(BLOCK));
    assert!(!call(&other).await.1.is_admitted());
    let end = Instant::now() + lag;
    while Instant::now() < end {
        call(&one).await;
    }
    for _ in 0..300 {
        assert!(!call(&one).await.1.is_admitted());
    }
    assert_eq!(admitted(&other, &rule, 30).await, 0);
}

/// A shorter block of a node that has not seen a longer one of another node changes nothing.
#[tokio::test(start_paused = true)]
async fn a_shorter_block_changes_nothing_before_the_longer_one_is_seen() {
    let fleet = Fleet::new();
    let node = || fleet.server().leased(leases()).with_blocks();
    keeps_the_longer(FixedWindow::per_day(1000), node(), node()).await;
    let fleet = Fleet::new();
    let node = || fleet.server().leased(leases()).with_blocks();
    keeps_the_longer(bucket(1000), node(), node()).await;
}

async fn keeps_the_longer<R, S>(rule: R, one: Blocks<S>, other: Blocks<S>)
where
    R: Algorithm,
    S: Store<Blockable<R>, Error = StoreError>,
{
    let policy = Policy::new("api");
    assert!(admits(&one, &rule, "mallory", 1).await);
    let block = other.block::<R>(&policy, "mallory", BLOCK).unwrap();
    assert_eq!(block.await.unwrap(), Some(BLOCK));
    tokio::time::sleep(OF_LEASES * 3 / 5).await;
    let shorter = one
        .block::<R>(&policy, "mallory", Duration::from_millis(500))
        .unwrap();
    let left = shorter.await.unwrap().unwrap();
    assert!(left > BLOCK - 2 * OF_LEASES, "{left:?}");
    tokio::time::sleep(BLOCK / 2).await;
    for node in [&one, &other] {
        assert!(!admits(node, &rule, "mallory", 1).await);
    }
    assert_eq!((one.made(), other.made()), (0, 1));
}

/// The order is refused when it is built. Whoever does not ask if it fits loses the wrapper, and no
/// block.
#[tokio::test(start_paused = true)]
async fn blocks_inside_are_refused_and_hold() {
    let fleet = Fleet::new();
    let node = || fleet.server().with_blocks().leased(leases());
    let wrapped = node();
    // The block is made by the store inside.
    let blocks = wrapped.get_ref().clone();
    holds_inside(&blocks, &wrapped).await;
    let fleet = Fleet::new();
    let wrapped = fleet.server().with_blocks().synced(ahead());
    let blocks = wrapped.get_ref().clone();
    holds_inside(&blocks, &wrapped).await;
}

async fn holds_inside<S, T>(blocks: &Blocks<S>, wrapped: &T)
where
    S: Store<Blockable<TokenBucket>, Error = StoreError>,
    T: Store<TokenBucket, Error = StoreError>,
{
    let (rule, policy) = (bucket(100_000), Policy::new("api"));
    assert_eq!(admitted(wrapped, &rule, 50).await, 50);
    let block = blocks
        .block::<TokenBucket>(&policy, "mallory", BLOCK)
        .unwrap();
    block.await.unwrap();
    assert_eq!(admitted(wrapped, &rule, 300).await, 0);
    let error = wrapped.fits(&rule).unwrap_err().to_string();
    assert!(error.contains(").with_blocks()`"), "{error}");
}

/// Whatever stands between them.
#[tokio::test(start_paused = true)]
async fn blocks_are_found_through_all_wrappers() {
    let (fleet, rule) = (Fleet::new(), bucket(100));
    let blocks = || fleet.server().with_blocks();
    let fits = |stores: [Result<(), tollgate::Error>; 2]| {
        for result in stores {
            let error = result.unwrap_err().to_string();
            assert!(error.starts_with("blocks inside of `."), "{error}");
        }
    };
    let guarded = || {
        let deadline = Duration::from_secs(1);
        let store = blocks()
            .timeout(deadline)
            .circuit_breaker(CircuitBreakerConfig::new());
        store.remember_refusals::<TokenBucket>()
    };
    fits([
        guarded().leased(leases()).fits(&rule),
        guarded().synced(ahead()).fits(&rule),
    ]);
    let erased = || Arc::new(blocks().boxed());
    fits([
        erased().leased(leases()).fits(&rule),
        erased().synced(ahead()).fits(&rule),
    ]);
    let inner = || fleet.server().with_blocks();
    let outer = || {
        inner()
            .leased(leases())
            .timeout(Duration::from_secs(1))
            .with_blocks()
    };
    fits([
        outer().fits(&rule),
        inner().synced(ahead()).with_blocks().fits(&rule),
    ]);
    let limiter = Limiter::try_new(Policy::new("api"), rule, blocks().synced(ahead()));
    assert!(limiter.is_err());
    let layer = RateLimitLayer::new(rule).key(Header::new("x-user"));
    let error = layer
        .try_store(blocks().leased(leases()).fail_open())
        .unwrap_err();
    assert!(
        error.to_string().contains("blocks inside of `.leased(…)`"),
        "{error}"
    );
}

/// Refusals that a lease, a view or the store decides count alike.
#[tokio::test(start_paused = true)]
async fn refusals_from_memory_count() {
    async fn blocked<S>(store: Blocks<S>)
    where
        S: Store<Blockable<TokenBucket>, Error = StoreError>,
    {
        let store = store
            .clock(TokioClock::new())
            .block_after(10, Duration::from_secs(60), BLOCK);
        let rule = bucket(5);
        let before = TokioClock::new().now();
        let mut calls = 0;
        while store.made() == 0 {
            acquire(&store, &rule, "mallory", 1).await.unwrap();
            calls += 1;
            assert!(calls <= 15, "no block after {calls} calls");
        }
        // Leases cost a unit of the burst.
        assert!((14..=15).contains(&calls), "{calls}");
        assert_eq!(admitted(&store, &rule, 100).await, 0);
        assert!(store.refused() == 100 && TokioClock::new().now() > before);
    }
    let fleet = Fleet::new();
    blocked(fleet.server().leased(leases()).with_blocks()).await;
    let fleet = Fleet::new();
    blocked(fleet.server().synced(ahead()).with_blocks()).await;
    let fleet = Fleet::new();
    blocked(fleet.server().with_blocks()).await;
}
