//! Checks, looks, resets and grants of a limiter, against limits written the slow obvious way.

use std::time::Duration;

use support::Random;
use tollgate::{
    AnyRule, Cascade, FixedWindow, Limiter, Quota, SlidingLog, ThreeColor, TokenBucket, Verdict,
    algorithm::Algorithm,
    store::{Local, Store, StoreExt},
    time::{Clock, ManualClock},
};

use super::{SECOND, cost, local, oracle, oracle::Oracle, policy};

const NANOS: u64 = 1_000_000_000;

fn agrees<A>(rule: A, make: impl Fn(u64) -> Box<dyn Oracle>)
where
    A: Algorithm,
    Local<A, ManualClock>: Store<
            A,
            Error = std::convert::Infallible,
            Answer: tollgate::store::driver::NeverWaits,
            Done: tollgate::store::driver::NeverWaits,
        >,
{
    let (mut granted, mut refused) = (0, 0);
    let seeds = support::cases(60).max(12);
    for seed in 0..seeds {
        let mut random = Random::new(seed);
        let (store, clock) = local();
        let limiter = Limiter::new(policy(), rule.clone(), store);
        let mut expected = make(clock.now().as_nanos());
        for step in 0..120 {
            let at = format!("seed {seed}, step {step}");
            let millis = random.below(400) * random.below(4);
            clock.advance(Duration::from_millis(millis));
            expected.pass(millis * 1_000_000);
            let remaining = match random.below(4) {
                0 => {
                    let units = random.below(9);
                    expected.grant(units);
                    granted += 1;
                    limiter.grant("alice", units).at_once().remaining()
                }
                1 if random.once_in(12) => {
                    expected = make(clock.now().as_nanos());
                    limiter.reset("alice").at_once();
                    limiter.look("alice").at_once().remaining()
                }
                _ => {
                    let units = 1 + random.below(5);
                    let passes = expected.remaining() >= units;
                    let decision = limiter.check("alice", cost(units)).at_once();
                    assert_eq!(decision.is_admitted(), passes, "{at}: {units} units");
                    refused += u64::from(!passes);
                    if passes {
                        expected.spend(units);
                    }
                    decision.remaining()
                }
            };
            assert_eq!(remaining, Some(expected.remaining()), "{at}");
            let look = limiter.look("alice").at_once();
            assert_eq!(look.remaining(), Some(expected.remaining()), "{at}");
        }
    }
    assert!(
        granted > 17 * seeds && refused > 5 * seeds,
        "{granted} grants, {refused} refusals"
    );
}

fn bucket(amount: u64, burst: u64) -> oracle::Bucket {
    oracle::Bucket::new(amount, NANOS, burst)
}

fn window(now: u64) -> oracle::Window {
    let (limit, period) = (12, 2 * NANOS);
    oracle::Window {
        limit,
        period,
        now,
        count: 0,
    }
}

fn log(now: u64) -> oracle::Log {
    let (limit, period) = (12, 3 * NANOS);
    oracle::Log {
        limit,
        period,
        now,
        calls: Vec::new(),
    }
}

#[test]
fn a_bucket_holds_as_many_more_up_to_its_burst() {
    agrees(TokenBucket::per_second(4).burst(10), |_| {
        Box::new(bucket(4, 10))
    });
    agrees(AnyRule::from(TokenBucket::per_second(4).burst(10)), |_| {
        Box::new(bucket(4, 10))
    });
}

#[test]
fn the_first_bucket_of_a_cascade_holds_as_many_more() {
    let rule: Cascade = "cascade 4/s burst=8 > 2/s burst=6".parse().unwrap();
    let expected = |_| Box::new(oracle::Cascade([bucket(4, 8), bucket(2, 6)])) as Box<dyn Oracle>;
    agrees(rule, expected);
}

#[test]
fn both_buckets_of_a_marker_hold_as_many_more() {
    let rule = ThreeColor::new(Quota::per_second(2), Quota::per_second(4))
        .burst(5)
        .peak_burst(10);
    agrees(rule, |_| {
        Box::new(oracle::ThreeColor {
            committed: bucket(2, 5),
            peak: bucket(4, 10),
        })
    });
}

#[test]
fn a_window_counts_less() {
    let rule = FixedWindow::new(Quota::new(12, 2 * SECOND));
    agrees(rule, |now| Box::new(window(now)));
    agrees(AnyRule::from(rule), |now| Box::new(window(now)));
}

#[test]
fn a_log_forgets_its_newest_calls() {
    let rule = SlidingLog::new(Quota::new(12, 3 * SECOND));
    agrees(rule, |now| Box::new(log(now)));
    agrees(AnyRule::from(rule), |now| Box::new(log(now)));
}

#[test]
fn both_rules_of_a_pair_get_the_grant() {
    let (a, b) = (
        TokenBucket::per_second(4).burst(10),
        FixedWindow::new(Quota::new(12, 2 * SECOND)),
    );
    agrees((a, b), |now| {
        Box::new(oracle::Both(bucket(4, 10), window(now)))
    });
    let all: AnyRule = "fixed-window 12/2s & token-bucket 4/s burst=10"
        .parse()
        .unwrap();
    agrees(all, |now| {
        Box::new(oracle::Both(bucket(4, 10), window(now)))
    });
}

/// After a grant the key stands as if its last call had cost less.
#[test]
fn a_grant_equals_a_smaller_call() {
    let rules = [
        "token-bucket 6/1h",
        "fixed-window 20/1m",
        "fixed-window 20/1m from=first-call",
        "sliding-window 20/1m",
        "sliding-window 20/1m slices=4",
        "sliding-log 20/1m",
        "warm-up 60/s over=2s",
        "cascade 20/1h > 10/1d",
        "three-color 20/1h burst=20 peak=30/1h peak-burst=30",
        "token-bucket 20/1h & sliding-window 20/1m",
    ];
    for text in rules {
        let rule: AnyRule = text.parse().unwrap();
        for (first, last, granted) in [(1, 4, 1), (1, 4, 4), (3, 3, 2), (2, 1, 1)] {
            let run = |last: u64, granted: u64| {
                let (store, clock) = local();
                let limiter = Limiter::new(policy(), rule.clone(), store);
                let spend = |units| {
                    let decision = limiter.check("alice", cost(units)).at_once();
                    assert!(decision.is_admitted(), "{text}: {units}");
                };
                spend(first);
                clock.advance(Duration::from_millis(300));
                if last > 0 {
                    spend(last);
                }
                if granted > 0 {
                    let _ = limiter.grant("alice", granted).at_once();
                }
                let mut seen = Vec::new();
                for seconds in [0, 1, 14, 20, 25, 61, 4000] {
                    clock.advance(seconds * SECOND);
                    let look = limiter.look("alice").at_once();
                    seen.push((look.remaining(), look.more_after()));
                }
                seen
            };
            assert_eq!(
                run(last, granted),
                run(last - granted, 0),
                "{text}: {granted} of {last}"
            );
        }
    }
}

/// A log can be above its limit: after settlements to more, and under a smaller rule.
#[test]
fn a_log_above_its_limit_gets_what_is_asked_for() {
    for (calls, more, limit) in [(10, 1, 5), (10, 1, 10), (4, 3, 10), (4, 3, 12), (6, 2, 4)] {
        let all = calls * more;
        for granted in 0..=all + 1 {
            let (store, clock) = local();
            let limiter = |limit| {
                let rule = SlidingLog::new(Quota::new(limit, 60 * SECOND));
                Limiter::new(policy(), rule, store.clone())
            };
            for _ in 0..calls {
                clock.advance(SECOND);
                let mut decision = limiter(20).check("alice", cost(1)).at_once();
                let charge = decision.take_charge().unwrap();
                limiter(20).settle("alice", charge, more).unwrap().at_once();
            }
            let used = || 30 - limiter(30).look("alice").at_once().remaining().unwrap();
            assert_eq!(used(), all);
            let stands = limiter(limit).grant("alice", granted).at_once();
            assert_eq!(stands.remaining(), Some(limit.saturating_sub(used())));
            let refunded = all - used();
            // Calls above the limit count as one unit each, and those that end the excess.
            let above = (all.saturating_sub(limit)).div_ceil(more);
            let most = granted + (more - 1) * above;
            assert!(
                (granted.min(all)..=most.min(all)).contains(&refunded),
                "{refunded} for {granted} of {calls} calls of {more}, limit {limit}"
            );
        }
    }
}

/// A look does not show the log, so nothing tells when there was enough.
#[test]
fn a_grant_to_a_blocked_log_ends() {
    let (store, clock) = local();
    let rule = SlidingLog::new(Quota::new(5, 60 * SECOND));
    let limiter = Limiter::new(policy(), rule, store.with_blocks().clock(clock));
    for _ in 0..5 {
        assert!(limiter.check("mallory", cost(1)).at_once().is_admitted());
    }
    let _ = limiter.block("mallory", 3600 * SECOND).unwrap().at_once();
    for units in [1, u64::MAX] {
        let stands = limiter.grant("mallory", units).at_once();
        assert_eq!(stands.retry_after(), Some(3600 * SECOND));
    }
}

/// Calls behind have their delays already.
#[test]
fn a_queue_gives_nothing_back() {
    for text in [
        "leaky-bucket 1/s queue=9",
        "warm-up-spaced 2/s over=4s max-wait=9s",
    ] {
        let rule: AnyRule = text.parse().unwrap();
        let limiter = Limiter::new(policy(), rule, local().0);
        let _ = limiter.check("alice", cost(3)).at_once();
        let delayed = limiter.check("alice", cost(2)).at_once();
        assert!(matches!(delayed.verdict(), Verdict::Delay(_)), "{text}");
        let before = limiter.look("alice").at_once();
        assert_eq!(limiter.grant("alice", 2).at_once(), before, "{text}");
    }
}

/// A grant is no charge of its own, so it does not spoil a settlement of another call.
#[test]
fn an_open_charge_can_be_settled_after_a_grant() {
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(100), local().0);
    let mut decision = limiter.check("alice", cost(40)).at_once();
    assert_eq!(limiter.grant("alice", 10).at_once().remaining(), Some(70));
    let charge = decision.take_charge().unwrap();
    limiter.settle("alice", charge, 25).unwrap().at_once();
    let remaining = limiter.look("alice").at_once().remaining().unwrap();
    assert!((75..=85).contains(&remaining), "{remaining}");
    assert_eq!(limiter.look("bob").at_once().remaining(), Some(100));
}

#[test]
fn nothing_is_granted_to_a_key_at_rest() {
    let (store, _) = local();
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(100), store.clone());
    for units in [0, 1, u64::MAX] {
        let look = limiter.grant("alice", units).at_once();
        assert_eq!(look.remaining(), Some(100));
    }
    assert_eq!(store.len(), 0);
    let _ = limiter.check("alice", cost(100)).at_once();
    assert_eq!(
        limiter.grant("alice", u64::MAX).at_once().remaining(),
        Some(100)
    );
}
