//! Admitted calls, and calls to the store.

use std::time::Duration;

use figures::{Balancing, Report, Scenario};

use crate::shared::{at_least, at_most, named, run};

/// Measures after the burst is spent, which takes 5 s at a demand of 1.2.
fn steady(name: &str) -> Scenario {
    Scenario {
        warm_up: Duration::from_secs(8),
        time: Duration::from_secs(22),
        ..named(name)
    }
}

fn decisions(report: &Report) -> u64 {
    report.admitted + report.refused + report.failed
}

/// A8, and the calls to the store.
#[test]
fn one_node_is_admitted_almost_all_that_is_refilled() {
    for seed in 1..=5 {
        let report = run(&Scenario {
            seed,
            ..steady("hot-1")
        });
        at_least(report.admitted, report.refilled, 970);
        at_most(report.asked, decisions(&report), 50);
    }
}

/// A8 for many nodes, and the calls to the store.
#[test]
fn many_nodes_are_admitted_almost_all_that_is_refilled() {
    for (name, seeds, calls) in [
        ("hot-8", 1..=5, CALLS_OF_8),
        ("hot-100", 1..=2, CALLS_OF_100),
    ] {
        for seed in seeds {
            let report = run(&Scenario {
                seed,
                ..steady(name)
            });
            at_least(report.admitted, report.refilled, 950);
            at_most(report.asked, decisions(&report), calls);
        }
    }
}

/// A9: in any span of ten holds, a node calls the store so often at most.
#[test]
fn a_node_calls_the_store_a_few_times_in_a_hold() {
    const HOLD: u64 = 100_000_000;
    for name in ["hot-1", "hot-8", "flood-8", "skewed"] {
        let report = run(&named(name));
        for calls in &report.calls {
            // 4t/H, and 1 + log2(λH) after idleness: at most 1,000 units are offered in a hold.
            let most = 4 * 10 + 1 + 10;
            let spans = calls.windows(most + 1);
            for span in spans {
                assert!(span[most] - span[0] > 10 * HOLD, "{name}: {span:?}");
            }
        }
    }
}

/// Max-min: nodes that need less than their share get all of it.
#[test]
fn cold_nodes_are_fully_served() {
    for seed in 1..=5 {
        let report = run(&Scenario {
            seed,
            ..steady("skewed")
        });
        let (hot, cold) = report.served.split_first().expect("nodes");
        for node in cold {
            at_least(node.admitted, node.offered, 990);
        }
        let of_cold: u64 = cold.iter().map(|node| node.admitted).sum();
        at_least(hot.admitted, report.refilled - of_cold, 950);
    }
}

#[test]
fn a_flood_is_refused_without_the_store() {
    let report = run(&steady("flood-8"));
    at_least(report.admitted, report.refilled, 950);
    at_most(report.asked, decisions(&report), 50);
}

#[test]
fn bursts_are_admitted_as_an_exact_limiter_would() {
    let report = run(&steady("bursty"));
    at_least(report.admitted, report.exact, 950);
}

/// Few calls of a key in a hold: an exact answer costs a call to the store.
#[test]
fn many_keys_are_admitted_as_an_exact_limiter_would() {
    for balancing in [Balancing::Random, Balancing::ByKey] {
        let report = run(&Scenario {
            balancing,
            ..named("zipf")
        });
        at_least(report.admitted, report.exact, 950);
        assert!(report.asked <= decisions(&report));
    }
}

/// The targets in calls for a thousand decisions.
const CALLS_OF_8: u64 = 130;
const CALLS_OF_100: u64 = 130;
