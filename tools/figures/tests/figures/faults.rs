//! The cost of each fault. Each run asserts that nothing is admitted above the limit.

use std::time::Duration;

use figures::{Call, Faults, Link, Outcome, Scenario, Span};

use crate::shared::{at_least, named, run};

const SECOND: u64 = 1_000_000_000;

fn admitted(calls: &[Call], from: u64, to: u64) -> u64 {
    let is_admitted =
        |call: &&Call| call.outcome == Outcome::Admitted && (from..to).contains(&call.answered);
    calls.iter().filter(is_admitted).count() as u64
}

/// During an outage only granted units are spent, and they end after the hold. Afterwards it is as
/// before.
#[test]
fn an_outage_is_bridged_by_what_was_granted() {
    for seed in 1..=5 {
        let report = run(&Scenario {
            seed,
            ..named("outage")
        });
        // The outage lasts from 4 s to 7 s. A call that asked before it is answered within 2 ms.
        let hold = SECOND / 10;
        assert!(
            admitted(&report.record, 4 * SECOND, 7 * SECOND) <= 200,
            "more than 8 nodes hold"
        );
        assert_eq!(
            admitted(&report.record, 4 * SECOND + 2 * hold, 7 * SECOND),
            0
        );
        // The bucket was refilled meanwhile: all calls are served.
        let after = admitted(&report.record, 15 * SECOND / 2, 10 * SECOND);
        at_least(after, 2500, 1000);
    }
}

/// After the store has lost its data, there is at most one burst more: here the bucket was full
/// again anyway.
#[test]
fn lost_data_of_a_full_bucket_cost_nothing() {
    run(&named("lost-data"));
}

/// The units of a dead node come back by time alone.
#[test]
fn a_dead_node_takes_nothing_with_it() {
    for seed in 1..=5 {
        let report = run(&Scenario {
            seed,
            time: Duration::from_secs(20),
            ..named("death")
        });
        let after = admitted(&report.record, 10 * SECOND, 20 * SECOND);
        at_least(after, 10_000, 950);
        assert_eq!(report.failed, 0);
    }
}

#[test]
fn a_node_that_is_cut_off_leaves_its_share_to_others() {
    let report = run(&named("partition"));
    assert!(report.failed > 0);
    at_least(
        admitted(&report.record, 5 * SECOND, 7 * SECOND),
        2 * 900,
        950,
    );
    assert!(report.served[1].admitted > 0);
}

#[test]
fn a_frozen_node_spends_nothing_that_has_ended() {
    for seed in 1..=10 {
        run(&Scenario {
            seed,
            ..named("freeze")
        });
    }
}

#[test]
fn clocks_may_differ_and_drift() {
    for seed in 1..=3 {
        let report = run(&Scenario {
            seed,
            time: Duration::from_secs(20),
            ..named("clocks")
        });
        at_least(report.admitted, report.refilled, 950);
    }
}

#[test]
fn lost_and_repeated_messages_cost_units_but_admit_none() {
    for seed in 1..=10 {
        let report = run(&Scenario {
            seed,
            ..named("lossy")
        });
        at_least(report.admitted, report.refilled, 850);
    }
}

/// All of it at once, on several rules.
#[test]
fn everything_goes_wrong() {
    let span = |from, to| Span {
        from: Duration::from_millis(from),
        to: Duration::from_millis(to),
    };
    let rules = [
        "token-bucket 500/s burst=300",
        "fixed-window 500/s",
        "sliding-window 500/s slices=4",
        "sliding-log 500/s",
        "token-bucket 500/s burst=300 & fixed-window 2000/5s",
    ];
    for rule in rules {
        for seed in 1..=10 {
            run(&Scenario {
                seed,
                rule: rule.parse().expect("a rule"),
                demand: 3_000_000,
                link: Link {
                    jitter: Duration::from_millis(20),
                    lost_requests: 50_000,
                    lost_answers: 50_000,
                    duplicated: 100_000,
                    ..Link::default()
                },
                faults: Faults {
                    outages: vec![span(2000, 2300)],
                    partitions: vec![(0, span(3000, 3500))],
                    freezes: vec![(1, span(1000, 1150)), (2, span(2900, 4100))],
                    deaths: vec![(3, Duration::from_secs(3))],
                    ..Faults::default()
                },
                offset: Duration::from_secs(100),
                drift: 1000,
                time: Duration::from_secs(6),
                ..named("hot-8")
            });
        }
    }
}
