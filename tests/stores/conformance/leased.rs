//! Leases: without a hold they are the wrapped store, and with one they keep the laws that do not
//! tell how much one node admits.

use std::time::Duration;

use support::timelines;
use tollgate::{
    AnyRule,
    store::{LeaseConfig, StoreExt},
    testing::{
        Alternating,
        conformance::{Law, Suite},
    },
    time::ManualClock,
};

use super::recorder::{Recorder, calls, states};

fn off(clock: &ManualClock) -> LeaseConfig<ManualClock> {
    let config = LeaseConfig::new().duration(Duration::ZERO);
    config.clock(clock.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duration_of_zero_keeps_all_laws() {
    let clock = ManualClock::default();
    let store = states::<AnyRule>(&clock).leased(off(&clock));
    let suite = Suite::new(store.clone())
        .clock(clock)
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .timelines(timelines());
    let report = suite.run().await.unwrap();
    assert_eq!(report.left_out(), [Law::Fault]);
    assert_eq!(report.kept().len(), Law::ALL.len() - 1);
    assert_eq!(store.stats(), Default::default());
}

/// A node admits less than the rule, because the store runs a stricter one and a node pauses, and
/// what remains is an estimate. So the laws that compare each decision with that of the rule do not
/// apply. Those that count do: never a unit too many, on any rule that can be leased, also with two
/// nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_hold_no_law_finds_a_unit_too_many() {
    for rules in [
        ["token-bucket 100/1s", "token-bucket 70/1m burst=40"],
        ["token-bucket 60/1h keep-free=20", "token-bucket 60/1h"],
        ["fixed-window 50/1s", "fixed-window 20/1d"],
        ["sliding-window 40/1s slices=4", "sliding-window 20/1d"],
        ["sliding-log 30/1s", "sliding-log 60/1m"],
        [
            "token-bucket 100/1s & fixed-window 90/1m",
            "fixed-window 20/1d",
        ],
    ] {
        for nodes in 1..=2 {
            let clock = ManualClock::default();
            let states = states::<AnyRule>(&clock);
            let hold = LeaseConfig::new()
                .duration(Duration::from_millis(50))
                .seed(1);
            let node = || states.clone().leased(hold.clone().clock(clock.clone()));
            let first = node();
            let second = if nodes == 1 { first.clone() } else { node() };
            let rules = rules.map(|rule| rule.parse::<AnyRule>().unwrap());
            let suite = Suite::with_rules(Alternating::new(first.clone(), second), rules)
                .clock(clock.clone())
                .sleep(tokio::time::sleep)
                .spawn(tokio::spawn)
                // As much too little as there is, and nothing too much.
                .tolerance(100, 0);
            // A reset drops the leases of one node, and others may still spend theirs.
            let suite = if nodes == 1 {
                suite
            } else {
                suite.without(Law::Reset)
            };
            let report = suite.run().await.unwrap();
            for law in [
                Law::Limit,
                Law::Never,
                Law::Keys,
                Law::Reserve,
                Law::Race,
                Law::Cancel,
            ] {
                assert!(report.kept().contains(&law), "{law:?}: {report}");
            }
            assert_eq!(report.kept().contains(&Law::Reset), nodes == 1);
            let stats = first.stats();
            assert!(stats.admitted > 20, "{stats:?}");
        }
    }
}

/// Without a hold, the wrapped store is asked the same as without the wrapper, and the answers are
/// its own.
#[tokio::test]
async fn a_duration_of_zero_is_the_wrapped_store_call_for_call() {
    for seed in 0..support::cases(50).max(8) {
        let clocks = [(); 2].map(|()| ManualClock::default());
        let [bare, wrapped] = clocks.each_ref().map(Recorder::new);
        let leased = wrapped.clone().leased(off(&clocks[1]));
        let expected = calls(&bare, &clocks[0], seed).await;
        assert_eq!(calls(&leased, &clocks[1], seed).await, expected);
        let asked = |store: &Recorder| store.asked.lock().unwrap().clone();
        assert_eq!(asked(&wrapped), asked(&bare), "seed {seed}");
        assert!(asked(&bare).len() >= 200);
    }
}
