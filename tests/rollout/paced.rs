//! Rules that give back while both releases run: one call after the other, and many at once.

use std::{sync::Arc, time::Duration};

use support::Random;
use tokio::time::{Instant, interval};

use super::{
    all,
    bounds::{CASES, check},
    release::{Answer, Place, Rollout, stores_of},
};

/// How long each key is asked for.
const TIME: Duration = Duration::from_secs(6);
const PACE: Duration = Duration::from_millis(12);

/// The answers about a key that both releases were asked for, and about one that the former release alone was asked for.
type Answers = [Vec<Answer>; 2];

/// Makes calls of a `cost`, to one release at a time: in turn, by fives, or at random.
async fn in_turns(rollout: &Rollout, [shared, alone]: [Place<'_>; 2], cost: u64) -> Answers {
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

/// Makes calls of a `cost` to both releases at once.
async fn at_once(rollout: &Rollout, [shared, alone]: [Place<'_>; 2], cost: u64) -> Answers {
    let [before, now] = &rollout.releases;
    let (by_before, by_now, by_one) = tokio::join!(
        before.flood(shared, cost, TIME),
        now.flood(shared, cost, TIME),
        before.flood(alone, cost, TIME),
    );
    [[by_before, by_now].concat(), by_one]
}

/// Checks, for each rule in each store that runs it, what the releases answered.
macro_rules! check_each {
    ($ask:ident) => {{
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
                    let places = [shared, alone].map(|key| Place { store, key, rule });
                    let [shared, alone] = $ask(&rollout, places, cost).await;
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
