//! Blocks of keys that are refused again and again: when, how often, and at what cost.

use std::{
    collections::VecDeque,
    sync::{Barrier, atomic::Ordering::Relaxed},
    thread,
    time::Duration,
};

use support::Random;
use tollgate::{
    Limiter, Policy, TokenBucket,
    algorithm::{AnyRule, Blockable},
    store::{Blocks, Local, LocalBuilder, StoreExt},
    testing::{Fault, Faulty},
    time::{Clock, ManualClock},
};

use super::{SECOND, cost, counted::Counted, local, policy};

type Manual = Local<Blockable<TokenBucket>, ManualClock>;

/// A limiter of one unit an hour, which blocks after some refusals.
fn limiter(
    refusals: u64,
    period: Duration,
    duration: Duration,
) -> (Limiter<TokenBucket, Blocks<Counted<Manual>>>, ManualClock) {
    let (store, clock) = local();
    let blocks = Counted::new(store).with_blocks().clock(clock.clone());
    let blocks = blocks.block_after(refusals, period, duration);
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(1), blocks);
    (limiter, clock)
}

/// The refusals of one key, written the slow obvious way.
#[test]
fn a_key_is_blocked_when_refused_often_enough_within_the_period() {
    let mut blocks = 0;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let (refusals, period) = (1 + random.below(6), 10 * SECOND);
        let duration = Duration::from_secs(1 + random.below(30));
        let (limiter, clock) = limiter(refusals, period, duration);
        let hour = clock.now().saturating_add(3600 * SECOND);
        assert!(limiter.check("mallory", cost(1)).at_once().is_admitted());
        let (mut seen, mut blocked_until) = (VecDeque::new(), clock.now());
        let mut made = 0;
        for step in 0..200 {
            let at = format!("seed {seed}, step {step}: {refusals} refusals, {duration:?}");
            clock.advance(Duration::from_millis(random.below(4000)));
            let now = clock.now();
            if now >= hour {
                break;
            }
            let decision = limiter.check("mallory", cost(1)).at_once();
            assert!(!decision.is_admitted(), "{at}");
            // Each wait is the longer one: of the limit, or of the block.
            let wait = hour.max(blocked_until).saturating_since(now);
            assert_eq!(decision.retry_after(), Some(wait), "{at}");
            if now >= blocked_until {
                seen.push_back(now);
                seen.retain(|at| now.saturating_since(*at) < period);
                if seen.len() as u64 == refusals {
                    seen.clear();
                    blocked_until = now.saturating_add(duration);
                    made += 1;
                }
            }
            let calls = &limiter.store();
            assert_eq!(calls.made(), made, "{at}");
        }
        blocks += made;
    }
    assert!(blocks > 300, "{blocks}");
}

#[test]
fn a_block_is_one_write_and_a_refusal_none() {
    let (store, clock) = local();
    let store = Counted::new(store);
    let calls = store.calls.clone();
    let blocks = store
        .with_blocks()
        .block_after(10, 60 * SECOND, 30 * SECOND)
        .clock(clock.clone());
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(1), blocks);
    let writes = || calls.writes_of_blocks.load(Relaxed);
    assert!(limiter.check("mallory", cost(1)).at_once().is_admitted());
    for round in 1..=5 {
        for _ in 0..9 {
            assert!(!limiter.check("mallory", cost(1)).at_once().is_admitted());
        }
        assert_eq!(writes(), round - 1);
        assert!(!limiter.check("mallory", cost(1)).at_once().is_admitted());
        assert_eq!(writes(), round);
        let acquires = calls.acquires.load(Relaxed);
        for _ in 0..100 {
            assert!(!limiter.check("mallory", cost(1)).at_once().is_admitted());
        }
        // A blocked key is not even asked about.
        assert_eq!((writes(), calls.acquires.load(Relaxed)), (round, acquires));
        clock.advance(30 * SECOND);
    }
    let store = limiter.store();
    assert_eq!((store.made(), store.failed(), store.refused()), (5, 0, 500));
}

#[test]
fn ten_thousand_attackers_are_blocked_and_the_memory_is_bounded() {
    let (limiter, clock) = limiter(3, 60 * SECOND, 30 * SECOND);
    for round in 0..4 {
        for key in 0..10_000_u64 {
            let decision = limiter.check(key, cost(2)).at_once();
            assert!(!decision.is_admitted(), "a cost above the capacity");
            let is_blocked = round == 3;
            assert_eq!(limiter.store().refused() > 0, is_blocked, "{key}");
        }
    }
    let store = limiter.store();
    let counts = (store.made(), store.refused(), store.uncounted());
    assert_eq!(counts, (10_000, 10_000, 0));
    // As many again, of which those for whom there is no room are not counted, but refused.
    clock.advance(3600 * SECOND);
    for key in 0..30_000_u64 {
        assert!(!limiter.check(key, cost(2)).at_once().is_admitted());
    }
    assert!(store.counted_keys() <= 16_384, "{}", store.counted_keys());
    let uncounted = store.uncounted();
    assert!(uncounted >= 30_000 - 16_384, "{uncounted}");
    assert_eq!((store.made(), store.failed()), (10_000, 0));
    // When the period is over, there is room for others.
    clock.advance(61 * SECOND);
    for _ in 0..3 {
        assert!(!limiter.check("mallory", cost(2)).at_once().is_admitted());
    }
    assert_eq!((store.made(), store.uncounted()), (10_001, uncounted));
}

/// Refusals of another policy, admissions and looks do not count.
#[test]
fn only_refusals_of_the_limit_count() {
    let (strict, _) = limiter(3, 60 * SECOND, 30 * SECOND);
    let store = strict.store().clone();
    let other = Limiter::new(
        Policy::new("other"),
        TokenBucket::per_hour(100),
        store.clone(),
    );
    for _ in 0..2 {
        assert!(!strict.check("mallory", cost(9)).at_once().is_admitted());
        assert!(!other.check("mallory", cost(999)).at_once().is_admitted());
        assert!(other.check("mallory", cost(1)).at_once().is_admitted());
        assert!(strict.look("mallory").at_once().is_admitted());
    }
    assert_eq!(store.made(), 0);
    assert!(!strict.check("mallory", cost(9)).at_once().is_admitted());
    assert_eq!(store.made(), 1);
    assert!(other.check("mallory", cost(1)).at_once().is_admitted());
}

#[test]
fn an_unblocked_key_begins_anew() {
    let (limiter, _) = limiter(3, 60 * SECOND, 30 * SECOND);
    for _ in 0..3 {
        let _ = limiter.check("mallory", cost(9)).at_once();
    }
    limiter.unblock("mallory").at_once();
    assert!(limiter.check("mallory", cost(1)).at_once().is_admitted());
    for n in 0..3 {
        assert_eq!(limiter.store().made(), 1, "{n}");
        let _ = limiter.check("mallory", cost(9)).at_once();
    }
    assert_eq!(limiter.store().made(), 2);
    // Also before it was blocked.
    for _ in 0..9 {
        limiter.unblock("alice").at_once();
        let _ = limiter.check("alice", cost(9)).at_once();
    }
    assert_eq!(limiter.store().made(), 2);
}

#[test]
fn threads_that_are_refused_at_once_make_one_block() {
    for refusals in [1, 2, 10, 64] {
        let blocks = Local::new()
            .with_blocks()
            .block_after(refusals, 3600 * SECOND, 3600 * SECOND);
        let limiter = Limiter::new(policy(), TokenBucket::per_hour(1), blocks);
        let barrier = Barrier::new(64);
        thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    barrier.wait();
                    assert!(!limiter.check("mallory", cost(2)).at_once().is_admitted());
                });
            }
        });
        assert_eq!(limiter.store().made(), 1, "{refusals}");
        assert_eq!(limiter.store().failed(), 0, "{refusals}");
    }
}

/// On a store that answers later, all of them have looked before the first block is made.
#[tokio::test]
async fn tasks_that_are_refused_at_once_make_one_block() {
    for refusals in [1, 2, 10, 64] {
        let (store, _) = local();
        let faulty = Faulty::new(store);
        faulty.faults().always(Fault::Late(3));
        let store = Counted::new(faulty);
        let calls = store.calls.clone();
        let blocks = store
            .with_blocks()
            .block_after(refusals, 3600 * SECOND, 3600 * SECOND);
        let limiter = Limiter::new(policy(), TokenBucket::per_hour(1), blocks);
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.check("mallory", cost(2)).await })
            })
            .collect();
        for task in tasks {
            assert!(!task.await.unwrap().unwrap().is_admitted());
        }
        assert_eq!(calls.acquires.load(Relaxed), 64, "{refusals}");
        assert_eq!(calls.writes_of_blocks.load(Relaxed), 1, "{refusals}");
        assert_eq!(limiter.store().made(), 1, "{refusals}");
        assert_eq!(limiter.store().failed(), 0, "{refusals}");
    }
}

#[test]
fn settings_out_of_range_are_errors() {
    let blocks = || local::<Blockable<TokenBucket>>().0.with_blocks();
    let year = 365 * 86_400 * SECOND;
    for (refusals, period, duration, expected) in [
        (0, SECOND, SECOND, "expected 1 to 1000"),
        (1001, SECOND, SECOND, "expected 1 to 1000"),
        (1, Duration::ZERO, SECOND, "the period of the quota is 0"),
        (1, SECOND, Duration::ZERO, "expected 1 ms to 365 days"),
        (1, SECOND, 2 * year, "expected 1 ms to 365 days"),
    ] {
        let error = blocks().try_block_after(refusals, period, duration);
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(blocks().try_block_after(1000, year, year).is_ok());
}

/// Refusals that are remembered around the blocks count, whatever the rule calls them, and those of
/// a blocked key do not.
#[tokio::test]
async fn remembered_refusals_count() {
    const REFUSALS: u64 = 10;
    for rule in [
        "token-bucket 1/1h",
        "fixed-window 1/1h",
        "three-color 1/1h burst=1 peak=1/1h peak-burst=1",
        "cascade 1/1h burst=1",
        "token-bucket 1/1h & three-color 1/1h burst=1 peak=1/1h peak-burst=1",
    ] {
        let rule: AnyRule = rule.parse().unwrap();
        let clock = ManualClock::default();
        let store = LocalBuilder::new().clock(clock.clone()).build();
        let blocks = store.with_blocks().clock(clock.clone());
        let blocks = blocks.block_after(REFUSALS, 600 * SECOND, 60 * SECOND);
        let remembered = blocks.clone().remember_refusals().clock(clock.clone());
        let limiter = Limiter::new(policy(), rule.clone(), remembered.clone());
        let check = async || limiter.check("mallory", cost(1)).await;
        assert!(check().await.is_admitted(), "{rule}");
        for block in 1..=3 {
            for refusal in 1..=REFUSALS {
                assert_eq!(blocks.made(), block - 1, "{rule}, {refusal}");
                assert!(!check().await.is_admitted());
            }
            assert_eq!(blocks.made(), block, "{rule}");
            for _ in 0..50 {
                assert!(!check().await.is_admitted());
            }
            assert_eq!(blocks.made(), block, "{rule}");
            clock.advance(60 * SECOND);
        }
        assert!(remembered.hits() > 100, "{rule}: {remembered:?}");
    }
}

/// A refusal that holds is the answer although the store cannot make the block.
#[tokio::test]
async fn a_remembered_refusal_holds_in_an_outage() {
    let (store, clock) = local();
    let faulty = Faulty::new(store);
    let faults = faulty.faults();
    let blocks = faulty.with_blocks().clock(clock.clone());
    let blocks = blocks.block_after(5, 60 * SECOND, 600 * SECOND);
    let store = blocks.clone().remember_refusals().clock(clock.clone());
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(1), store.fail_open());
    let check = async || limiter.check("mallory", cost(1)).await;
    assert!(check().await.is_admitted());
    assert!(!check().await.is_admitted());
    for fault in [Fault::Unavailable, Fault::Late(2)] {
        faults.always(fault);
        for call in 0..50 {
            assert!(!check().await.is_admitted(), "{call}");
        }
        clock.advance(61 * SECOND);
    }
    // The second time the block was made.
    assert_eq!((blocks.made(), blocks.failed()), (1, 0));
}

/// A block ends when it is lifted, by whichever program.
#[tokio::test]
async fn a_lifted_block_is_not_remembered() {
    let (store, clock) = local();
    let blocks = store.with_blocks().clock(clock.clone());
    let remembering = blocks.clone().remember_refusals().clock(clock.clone());
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(5), remembering);
    let hour = 3600 * SECOND;
    blocks
        .block(&policy(), "alice", hour)
        .unwrap()
        .await
        .unwrap();
    for _ in 0..3 {
        let refused = limiter.check("alice", cost(1)).await;
        assert_eq!(refused.retry_after(), Some(hour));
    }
    assert_eq!(limiter.store().hits(), 2);
    blocks.unblock(&policy(), "alice").await.unwrap();
    clock.advance(SECOND);
    assert!(limiter.check("alice", cost(1)).await.is_admitted());
}

/// While calls that leave tokens to others are refused, other calls of the key may pass.
#[tokio::test]
async fn refusals_under_a_rule_that_keeps_tokens_free_do_not_count() {
    for text in ["3/1h keep-free=2", "3/1h burst=9 keep-free=8"] {
        let (store, clock) = local();
        let blocks = store.with_blocks().clock(clock.clone());
        let blocks = blocks.block_after(3, 60 * SECOND, 600 * SECOND);
        let store = blocks.clone().remember_refusals().clock(clock);
        let keeping: TokenBucket = format!("token-bucket {text}").parse().unwrap();
        let limiter = |rule| Limiter::new(policy(), rule, store.clone());
        let others = limiter(keeping);
        let important = limiter(keeping.keep_free(0));
        assert!(others.check("alice", cost(1)).await.is_admitted());
        for _ in 0..10 {
            assert!(!others.check("alice", cost(1)).await.is_admitted());
        }
        for _ in 0..keeping.kept_free() {
            assert!(important.check("alice", cost(1)).await.is_admitted());
        }
        assert_eq!(blocks.made(), 0);
        for _ in 0..3 {
            assert!(!important.check("alice", cost(1)).await.is_admitted());
        }
        assert_eq!(blocks.made(), 1);
    }
}
