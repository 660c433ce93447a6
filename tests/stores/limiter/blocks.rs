//! Blocks in memory: how long they last, what they refuse, and what they leave alone.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use support::Random;
use tollgate::{
    AnyRule, FixedWindow, LeakyBucket, Limiter, Policy, TokenBucket,
    algorithm::{Algorithm, Blockable},
    key::Key,
    store::{
        Backend, Local, Store, StoreExt,
        driver::{Ask, NeverWaits},
    },
    time::{Clock, ManualClock},
};

use super::{SECOND, cost, counted::Counted, local, policy};

const MILLI: Duration = Duration::from_millis(1);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Blocks and unblocks at random, and expects a key to be refused until its longest block ends.
fn lasts<A>(rule: A)
where
    A: Algorithm,
    Local<Blockable<A>, ManualClock>:
        Store<Blockable<A>, Error = std::convert::Infallible, Answer: NeverWaits, Done: NeverWaits>,
{
    let (mut refused, mut admitted, mut extended) = (0, 0, 0);
    let seeds = support::cases(40).max(10);
    for seed in 0..seeds {
        let mut random = Random::new(seed);
        let (store, clock) = local();
        let blocks = store.with_blocks();
        let limiter = Limiter::new(policy(), rule.clone(), blocks.clone());
        let other = Limiter::new(Policy::new("other"), rule.clone(), blocks);
        let mut ends = clock.now();
        for step in 0..150 {
            let at = format!("seed {seed}, step {step}");
            let scale = *random.choose(&[1, 50, 10_000, 86_400_000]);
            let span = Duration::from_millis(1 + random.below(scale));
            match random.below(6) {
                0 | 1 => {
                    let (now, left) = (clock.now(), ends.saturating_since(clock.now()));
                    extended += u64::from(!left.is_zero() && left < span);
                    ends = ends.max(now.saturating_add(span));
                    let blocked = limiter.block("mallory", span).unwrap().at_once();
                    assert_eq!(blocked, Some(ends.saturating_since(now)), "{at}: {span:?}");
                }
                2 if random.once_in(4) => {
                    ends = clock.now();
                    limiter.unblock("mallory").at_once();
                }
                3 if ends > clock.now() => {
                    // Just before the end, and at it.
                    let left = ends.saturating_since(clock.now());
                    clock.advance(left - Duration::from_nanos(1));
                    let decision = limiter.check("mallory", cost(1)).at_once();
                    assert!(!decision.is_admitted(), "{at}");
                    assert_eq!(
                        decision.retry_after(),
                        Some(Duration::from_nanos(1)),
                        "{at}"
                    );
                    clock.advance(Duration::from_nanos(1));
                }
                _ => clock.advance(span),
            }
            let left = ends.saturating_since(clock.now());
            let look = limiter.look("mallory").at_once();
            let before = other.look("mallory").at_once();
            assert!(before.remaining() > Some(0), "{at}: another policy");
            let decision = limiter.check("mallory", cost(2)).at_once();
            assert_eq!(
                decision.is_admitted(),
                left.is_zero(),
                "{at}: {left:?} left"
            );
            if left.is_zero() {
                admitted += 1;
                assert!(look.is_admitted(), "{at}");
                limiter.reset("mallory").at_once();
            } else {
                refused += 1;
                for decision in [look, decision] {
                    assert_eq!(decision.retry_after(), Some(left), "{at}");
                    assert_eq!(decision.reset_after(), left, "{at}");
                    assert_eq!(decision.remaining(), Some(0), "{at}");
                    assert_eq!(decision.limit(), before.limit(), "{at}");
                }
            }
            let bystander = limiter.check("alice", cost(1)).at_once();
            assert!(bystander.is_admitted(), "{at}");
            limiter.reset("alice").at_once();
        }
    }
    assert!(
        2 * refused > 25 * seeds && 2 * admitted > 15 * seeds && 2 * extended > 5 * seeds,
        "{refused} refused, {admitted} admitted, {extended} extended"
    );
}

#[test]
fn a_block_lasts_until_its_end_under_a_token_bucket() {
    lasts(TokenBucket::per_second(50));
}

#[test]
fn a_block_lasts_until_its_end_under_a_leaky_bucket() {
    lasts(LeakyBucket::per_second(50));
}

#[test]
fn a_block_lasts_until_its_end_under_a_fixed_window() {
    lasts(FixedWindow::per_second(50));
    lasts(FixedWindow::per_hour(50).from_first_call());
}

#[test]
fn a_block_lasts_until_its_end_under_a_pair() {
    lasts((TokenBucket::per_second(50), LeakyBucket::per_second(50)));
    let inner = (TokenBucket::per_second(50), TokenBucket::per_hour(70));
    lasts((LeakyBucket::per_second(50), inner));
}

#[test]
fn a_block_lasts_until_its_end_under_any_rule() {
    for text in [
        "token-bucket 50/1s",
        "fixed-window 50/1m",
        "sliding-window 50/1m slices=4",
        "sliding-log 50/1m",
        "warm-up 200/s over=10s cold=3",
        "cascade 10/s burst=10 > 5/s burst=20",
        "token-bucket 50/1s & fixed-window 1000/1h",
    ] {
        lasts(text.parse::<AnyRule>().unwrap());
    }
}

#[test]
fn a_block_lasts_whole_milliseconds_up_to_a_year() {
    fn check<A>(rule: A)
    where
        A: Algorithm,
        Local<Blockable<A>, ManualClock>: Store<
                Blockable<A>,
                Error = std::convert::Infallible,
                Answer: NeverWaits,
                Done: NeverWaits,
            >,
    {
        let (store, clock) = local();
        let limiter = Limiter::new(policy(), rule, store.with_blocks());
        for (asked, blocked) in [
            (Duration::from_nanos(1), MILLI),
            (Duration::from_micros(1500), 2 * MILLI),
            (YEAR, YEAR),
        ] {
            limiter.unblock("mallory").at_once();
            let lasts = limiter.block("mallory", asked).unwrap().at_once();
            assert_eq!(lasts, Some(blocked));
            clock.advance(blocked - Duration::from_nanos(1));
            assert!(!limiter.check("mallory", cost(1)).at_once().is_admitted());
            clock.advance(Duration::from_nanos(1));
            assert!(limiter.check("mallory", cost(1)).at_once().is_admitted());
            clock.advance(YEAR);
        }
        // A year, over and over.
        for _ in 0..3 {
            let lasts = limiter.block("mallory", YEAR).unwrap().at_once();
            assert_eq!(lasts, Some(YEAR));
            clock.advance(YEAR - MILLI);
        }
        for duration in [
            Duration::ZERO,
            YEAR + Duration::from_nanos(1),
            Duration::MAX,
        ] {
            let error = limiter.block("alice", duration).unwrap_err().to_string();
            assert!(error.contains("expected 1 ms to 365 days"), "{error}");
        }
        assert!(limiter.check("alice", cost(1)).at_once().is_admitted());
    }
    check(TokenBucket::per_hour(50));
    check(LeakyBucket::per_hour(50));
    check(FixedWindow::per_hour(50));
    check("sliding-log 50/1h".parse::<AnyRule>().unwrap());
}

#[test]
fn a_blocked_key_spends_nothing() {
    let (store, _) = local();
    let store = store.with_blocks();
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(10), store.clone());
    let _ = limiter.check("mallory", cost(4)).at_once();
    let _ = limiter.block("mallory", SECOND).unwrap().at_once();
    for _ in 0..20 {
        assert!(!limiter.check("mallory", cost(1)).at_once().is_admitted());
    }
    limiter.unblock("mallory").at_once();
    assert_eq!(limiter.look("mallory").at_once().remaining(), Some(6));
    assert_eq!((store.made(), store.refused(), store.failed()), (1, 20, 0));
}

/// The wait is that of the limit if that is longer than the block.
#[test]
fn a_key_that_is_blocked_and_empty_waits_for_the_later_end() {
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(1), local().0.with_blocks());
    let _ = limiter.check("mallory", cost(1)).at_once();
    let _ = limiter.block("mallory", SECOND).unwrap().at_once();
    let hour = 3600 * SECOND;
    let refused = limiter.check("mallory", cost(1)).at_once();
    assert_eq!(refused.retry_after(), Some(hour));
    let _ = limiter.block("mallory", 2 * hour).unwrap().at_once();
    let refused = limiter.check("mallory", cost(1)).at_once();
    assert_eq!(refused.retry_after(), Some(2 * hour));
    assert_eq!(
        limiter.check("mallory", cost(2)).at_once().retry_after(),
        None
    );
}

/// A block is one call to the store, whether it is shorter or longer than the one before.
#[test]
fn a_block_is_one_call() {
    let store = Counted::new(local().0);
    let calls = store.calls.clone();
    let writes = || calls.writes_of_blocks.load(Relaxed);
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(10), store.with_blocks());
    for (seconds, expected) in [(60, 1), (60, 2), (1, 3), (61, 4)] {
        let _ = limiter
            .block("mallory", seconds * SECOND)
            .unwrap()
            .at_once();
        assert_eq!(writes(), expected, "{seconds} s");
    }
    for _ in 0..5 {
        assert!(!limiter.check("mallory", cost(1)).at_once().is_admitted());
    }
    assert_eq!((writes(), calls.acquires.load(Relaxed)), (4, 0));
    assert_eq!(limiter.store().made(), 2);
    limiter.unblock("mallory").at_once();
    assert_eq!(writes(), 5);
}

/// Several asks of one call: if one key is blocked, none is charged.
#[test]
fn all_asks_of_a_call_are_refused_if_one_key_is_blocked() {
    let (store, clock) = local();
    let store = store.with_blocks();
    let rule = TokenBucket::per_hour(10);
    let (user, address) = (Policy::new("user"), Policy::new("address"));
    let mallory = Key::from("mallory");
    let blocked = store.block(&address, mallory, 5 * SECOND).unwrap();
    assert_eq!(blocked.at_once(), Ok(Some(5 * SECOND)));
    let asks = [
        Ask::new(&user, &rule, mallory, cost(3)),
        Ask::new(&address, &rule, mallory, cost(3)),
    ];
    let decisions = store.acquire(&asks).at_once().unwrap();
    let [free, closed] = decisions.as_slice() else {
        panic!("{decisions:?}");
    };
    assert!(!decisions.is_admitted() && !closed.is_admitted());
    assert_eq!(closed.retry_after(), Some(5 * SECOND));
    assert_eq!((free.remaining(), free.is_admitted()), (Some(10), true));
    let mut free = *free;
    assert!(free.take_charge().is_none());
    clock.advance(5 * SECOND);
    let decisions = store.acquire(&asks).at_once().unwrap();
    assert!(
        decisions
            .as_slice()
            .iter()
            .all(|d| d.remaining() == Some(7))
    );
}

#[test]
fn no_policy_has_the_name_of_a_block() {
    for name in ["api!blocked", "!blocked", "api!blocked!blocked"] {
        let error = Policy::try_new(name).unwrap_err().to_string();
        assert!(error.contains("ends with `!blocked`"), "{error}");
    }
    assert!(Policy::try_new("api!blocked ").is_ok());
    // The longest name has blocks, too.
    let long = Policy::new(&"n".repeat(128));
    let limiter = Limiter::new(long, TokenBucket::per_hour(10), local().0.with_blocks());
    let _ = limiter.block("mallory", SECOND).unwrap().at_once();
    assert!(!limiter.check("mallory", cost(1)).at_once().is_admitted());
}

#[test]
fn what_the_store_reports_is_forwarded() {
    let store = Counted::new(local::<Blockable<TokenBucket>>().0).with_blocks();
    let key = Key::from("alice");
    assert_eq!(store.address(), Some("counted"));
    assert_eq!(store.unsettled(), Some(17));
    assert_eq!(store.shard(&Policy::new("four"), &key), 4);
    assert!(Store::fits(&store, &TokenBucket::per_hour(1)).is_ok());
}

/// More policies than are remembered.
#[test]
fn any_number_of_policies_has_blocks() {
    let store = local().0.with_blocks();
    let limiters: Vec<_> = (0..200)
        .map(|n| {
            let policy = Policy::new(&format!("policy {n}"));
            Limiter::new(policy, TokenBucket::per_hour(10), store.clone())
        })
        .collect();
    for limiter in limiters.iter().step_by(3) {
        let _ = limiter.block("mallory", SECOND).unwrap().at_once();
    }
    for (n, limiter) in limiters.iter().enumerate() {
        let is_admitted = limiter.check("mallory", cost(1)).at_once().is_admitted();
        assert_eq!(is_admitted, n % 3 != 0, "{n}");
    }
}
