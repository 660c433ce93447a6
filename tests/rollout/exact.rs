//! Rules that refill nothing while a test runs: counted to the unit.

use std::sync::Arc;

use support::Random;

use super::{
    all, in_both_orders,
    release::{Release, Rollout, STORES, Target, stores_of},
};

/// A rule, and the number of calls of one unit that it admits.
pub(crate) const RULES: [(&str, u64); 18] = [
    ("token-bucket 7/1d burst=12", 12),
    ("token-bucket 9/1d burst=12", 12),
    ("token-bucket 60/7d burst=12", 12),
    ("token-bucket 1000/1d burst=12", 12),
    ("token-bucket 999/30d burst=12", 12),
    ("token-bucket 7/1d burst=12 initial=9 keep=1d", 9),
    ("token-bucket 7/1d burst=12 initial=17 keep=1d", 17),
    ("leaky-bucket 7/1d queue=8", 9),
    ("fixed-window 8/3650d", 8),
    ("fixed-window 11/1d from=first-call", 11),
    ("sliding-window 9/3650d", 9),
    ("sliding-log 7/1d", 7),
    ("cascade 7/9d > 9/1d burst=4", 11),
    ("three-color 3/1d peak=7/1d peak-burst=9", 9),
    // Calls wait for up to five hours. The fourth one would wait longer.
    ("warm-up-spaced 1/1h over=5h", 3),
    ("token-bucket 7/1d & sliding-log 9/1d", 7),
    ("sliding-log 9/1d & token-bucket 7/1d", 7),
    ("fixed-window 9/3650d & leaky-bucket 7/9d queue=10", 9),
];

/// Selects the release that makes a call: 0 is the former one.
type Turns = fn(u64, &mut Random) -> u64;

const TURNS: [Turns; 6] = [
    // One release until nothing is left, then the other.
    |call, _| u64::from(call >= 20),
    |call, _| u64::from(call < 20),
    |call, _| call % 2,
    |call, _| (call + 1) % 2,
    |call, _| call / 3 % 2,
    |_, random| random.below(2),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_in_any_order_admit_one_limit() {
    let rollout = Rollout::start().await;
    let mut tasks = Vec::new();
    for (rule, limit) in RULES {
        for store in stores_of(rule) {
            for (order, turns) in TURNS.into_iter().enumerate() {
                let rollout = Arc::clone(&rollout);
                tasks.push(async move {
                    let key = format!("{order}:{rule}").replace(' ', "_");
                    let key = &*key;
                    let target = Target { store, key, rule };
                    let mut random = Random::new(limit);
                    let mut admitted = 0;
                    for call in 0..40 {
                        let release = &rollout.releases[turns(call, &mut random) as usize];
                        let answer = release.acquire(target, 1).await;
                        admitted += u64::from(answer.is_admitted);
                        let is_right = answer.is_admitted == (call < limit);
                        assert!(
                            is_right,
                            "{target:?}, call {call} of {}: {answer:?}",
                            release.name
                        );
                        if is_counted(rule) {
                            // No call may cost more than the burst, even if the initial fill is
                            // larger. Releases with different units of time round in favour of the
                            // limit, so a unit may be missing for an instant.
                            let left = (limit - admitted).min(12);
                            let is_right =
                                (left.saturating_sub(1)..=left).contains(&answer.remaining);
                            assert!(
                                is_right,
                                "{target:?}, call {call}: {left} are left, {answer:?}"
                            );
                        }
                    }
                    assert_agree(&rollout.releases, target, 1, limit).await;
                });
            }
        }
    }
    all(tasks).await;
    rollout.end().await;
}

/// Returns `true` if `remaining` is the total of what is left. For a cascade it is the content of
/// the fullest bucket.
fn is_counted(rule: &str) -> bool {
    !rule.starts_with("cascade") && !rule.starts_with("warm-up")
}

/// Checks that both releases refuse a call until the same instant. A release may round the interval
/// of a unit to a third of a nanosecond, so the instants may differ by that much for each unit of
/// the limit.
pub(crate) async fn assert_agree(
    releases: &[Release; 2],
    target: Target<'_>,
    cost: u64,
    limit: u64,
) {
    let [before, now] = releases;
    // One after the other: counters count a call for an instant before they refuse it.
    let before = before.acquire(target, cost).await;
    let now = now.acquire(target, cost).await;
    assert!(!before.is_admitted && !now.is_admitted, "{target:?}");
    // Redis decides by its own clock in microseconds. With memcached each process has a clock.
    let clocks = if target.store == "redis" {
        2_000
    } else {
        5_000_000
    };
    assert!(
        before.until().abs_diff(now.until()) <= clocks + limit / 3,
        "{target:?}: {before:?} by the former release, {now:?} by this one"
    );
}

/// The former release kept the whole log in the state, and each release reads what it has written:
/// a client gets a limit of each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_admit_a_limit_of_each_by_a_log_in_redis() {
    let rollout = Rollout::start().await;
    let mut tasks = Vec::new();
    let logs = RULES
        .into_iter()
        .filter(|(rule, _)| rule.contains("sliding-log"));
    for (rule, limit) in logs {
        for (order, turns) in TURNS.into_iter().enumerate() {
            let rollout = Arc::clone(&rollout);
            tasks.push(async move {
                let key = format!("{order}:{rule}").replace(' ', "_");
                let target = Target {
                    store: STORES[0],
                    key: &key,
                    rule,
                };
                let mut random = Random::new(limit);
                for reset_by in [0, 1] {
                    let mut admitted = [0, 0];
                    for call in 0..40 {
                        let turn = turns(call, &mut random) as usize;
                        let answer = rollout.releases[turn].acquire(target, 1).await;
                        admitted[turn] += u64::from(answer.is_admitted);
                    }
                    assert_eq!(admitted, [limit; 2], "{target:?}");
                    rollout.releases[reset_by].reset(target).await;
                }
            });
        }
    }
    all(tasks).await;
    rollout.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_by_one_release_counts_in_the_other() {
    const LARGE: [(&str, u64); 5] = [
        ("token-bucket 7/s burst=1000000", 1_000_000),
        ("token-bucket 104857600/1h", 104_857_600),
        ("leaky-bucket 9/s queue=999999", 1_000_000),
        ("fixed-window 1000000/3650d", 1_000_000),
        ("three-color 7/s peak=9/s peak-burst=1000000", 1_000_000),
    ];
    in_both_orders(LARGE, |rollout, target, first, limit| async move {
        let one = &rollout.releases[first];
        let other = &rollout.releases[1 - first];
        let most = limit - limit / 3;
        assert!(
            one.acquire(target, limit / 3).await.is_admitted,
            "{target:?}"
        );
        // More units than are refilled meanwhile.
        let spare = limit / 100;
        let too_much = other.acquire(target, most + spare).await;
        assert!(!too_much.is_admitted, "{target:?}: {too_much:?}");
        let enough = other.acquire(target, most - most / 1000).await;
        assert!(enough.is_admitted, "{target:?}: {enough:?}");
        let refused = one.acquire(target, spare).await;
        assert!(!refused.is_admitted, "{target:?}: {refused:?}");
        assert_agree(&rollout.releases, target, spare, limit).await;
    })
    .await;
}
