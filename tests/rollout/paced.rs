//! Rules that refill while both releases run: with sequential calls, and with concurrent ones.

use std::{sync::Arc, time::Duration};

use support::Random;
use tokio::time::{Instant, interval};

use super::{
    TIMED, all,
    bounds::{CASES, check},
    release::{Answer, Rollout, Target, stores_of},
};

/// The duration of the calls on each key.
const TIME: Duration = Duration::from_secs(6);
const PACE: Duration = Duration::from_millis(12);

/// The answers about a key used by both releases, and about one used by the former release alone.
type Answers = [Vec<Answer>; 2];

/// Makes calls of a `cost`, one at a time: to the releases in turn, in groups of five, or at
/// random.
async fn in_turns(rollout: &Rollout, [shared, alone]: [Target<'_>; 2], cost: u64) -> Answers {
    let [before, _] = &rollout.releases;
    let (end, mut pace) = (Instant::now() + TIME, interval(PACE));
    let (mut random, mut answers) = (Random::new(cost), Answers::default());
    for call in 0.. {
        if pace.tick().await > end {
            break;
        }
        let turn = match call / 50 % 3 {
            0 => call % 2,
            1 => call / 5 % 2,
            _ => random.below(2),
        };
        let release = &rollout.releases[turn as usize];
        let (by_both, by_one) =
            tokio::join!(release.acquire(shared, cost), before.acquire(alone, cost));
        answers[0].push(by_both);
        answers[1].push(by_one);
    }
    answers
}

/// Makes calls of a `cost` to both releases concurrently.
async fn at_once(rollout: &Rollout, [shared, alone]: [Target<'_>; 2], cost: u64) -> Answers {
    let [before, now] = &rollout.releases;
    let (by_before, by_now, by_one) = tokio::join!(
        before.flood(shared, cost, TIME),
        now.flood(shared, cost, TIME),
        before.flood(alone, cost, TIME),
    );
    [[by_before, by_now].concat(), by_one]
}

/// Checks the answers of the releases, for each rule in each store that runs it.
macro_rules! check_each {
    ($ask:ident) => {{
        let _timed = TIMED.read().await;
        let rollout = Rollout::start().await;
        let mut tasks = Vec::new();
        for case in CASES {
            for store in stores_of(case.0) {
                let rollout = Arc::clone(&rollout);
                tasks.push(async move {
                    let (rule, cost, _) = case;
                    let keys =
                        ["shared", "alone"].map(|key| format!("{key}:{rule}").replace(' ', "_"));
                    let [shared, alone] = &keys;
                    let targets = [shared, alone].map(|key| Target { store, key, rule });
                    let [shared, alone] = $ask(&rollout, targets, cost).await;
                    check(case, store, &shared, &alone);
                });
            }
        }
        all(tasks).await;
        rollout.end().await;
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_that_take_turns_admit_what_one_release_admits() {
    check_each!(in_turns);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_at_once_admit_what_one_release_admits() {
    check_each!(at_once);
}
