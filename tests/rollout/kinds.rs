//! Rules of different kinds in the two releases: a client gets at most one limit of each.

use std::sync::Arc;

use super::{
    all,
    exact::RULES,
    release::{COUNTERS, Rollout, STORES, Target, stores_of},
};

/// Returns `true` if the rules read each other's states.
fn are_of_one_kind(one: &str, other: &str) -> bool {
    let names = |rule: &str| -> Vec<String> {
        let names = rule.split(" & ").filter_map(|rule| rule.split(' ').next());
        names.map(str::to_owned).collect()
    };
    names(one) == names(other)
}

/// Selects the release that makes a call: 0 is the former one.
type Turns = fn(u64) -> u64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_of_two_kinds_admit_a_limit_of_each() {
    const TURNS: [Turns; 3] = [
        |call| u64::from(call >= 20),
        |call| u64::from(call < 20),
        |call| call % 2,
    ];
    let rollout = Rollout::start().await;
    let mut tasks = Vec::new();
    for (n, old) in RULES.into_iter().enumerate() {
        for (m, new) in RULES.into_iter().enumerate() {
            if are_of_one_kind(old.0, new.0) {
                continue;
            }
            let are_counted =
                [old, new].map(|rule| stores_of(rule.0).any(|store| store == COUNTERS));
            let counters = (are_counted == [true; 2]).then_some(COUNTERS);
            for store in STORES.into_iter().chain(counters) {
                let rollout = Arc::clone(&rollout);
                let turns = TURNS[(n + m) % TURNS.len()];
                tasks.push(async move {
                    let key = format!("{n}:{m}");
                    let rules = [old, new];
                    let target = |turn: usize| Target {
                        store,
                        key: &key,
                        rule: rules[turn].0,
                    };
                    let mut admitted = [0, 0];
                    for call in 0..40 {
                        let turn = turns(call) as usize;
                        let answer = rollout.releases[turn].acquire(target(turn), 1).await;
                        admitted[turn] += u64::from(answer.is_admitted);
                    }
                    let limits = rules.map(|(_, limit)| limit);
                    assert_eq!(admitted, limits, "{rules:?} in {store}");
                    if store == COUNTERS {
                        // Counters reset only the windows that their process has used.
                        return;
                    }
                    // A reset by either release clears the states that both have written.
                    rollout.releases[n % 2].reset(target(0)).await;
                    for turn in [0, 1] {
                        let answer = rollout.releases[turn].acquire(target(turn), 1).await;
                        assert!(answer.is_admitted, "{rules:?} in {store}, after a reset");
                    }
                });
            }
        }
    }
    all(tasks).await;
    rollout.end().await;
}
