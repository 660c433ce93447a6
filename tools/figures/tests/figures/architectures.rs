//! The promises of each architecture, exactly where they are known.

use std::time::Duration;

use figures::architectures::{FleetSettings, Kind, Score, run};

use crate::drawn;

fn settings(rule: &str, nodes: usize, load: u64) -> FleetSettings {
    FleetSettings {
        time: Duration::from_secs(4),
        scaled: (Duration::from_secs(1), Duration::from_secs(2)),
        ..FleetSettings::new(rule.parse().expect("a rule"), nodes, 1_000_000 * load)
    }
}

fn score(kind: Kind, settings: &FleetSettings) -> Score {
    run(kind, settings).expect("a fleet")
}

const BUCKET: &str = "token-bucket 10/s";
const WINDOW: &str = "sliding-window 10/s";

/// Asserts that each call was decided as one exact limiter decides it.
#[track_caller]
fn assert_exact(score: &Score) {
    assert_eq!(score.admitted, score.exact, "{score:?}");
    assert_eq!(score.over_admitted, 0, "{score:?}");
    assert_eq!(score.wrongly_refused, 0, "{score:?}");
    assert_eq!(score.withheld, 0, "{score:?}");
    assert_eq!(score.failed, 0, "{score:?}");
}

#[test]
fn one_machine_that_knows_all_calls_is_exact() {
    for rule in [BUCKET, WINDOW, "fixed-window 10/s"] {
        for nodes in [1, 2, 8] {
            let settings = settings(rule, nodes, 12);
            for kind in [Kind::Central, Kind::Lock, Kind::Balancers] {
                assert_exact(&score(kind, &settings));
            }
        }
        let alone = settings(rule, 1, 12);
        for kind in [Kind::NoSync, Kind::Broadcast] {
            assert_exact(&score(kind, &alone));
        }
    }
}

#[test]
fn sticky_sessions_are_exact_while_nothing_scales() {
    for kind in [Kind::StickyModulo, Kind::StickyRendezvous] {
        let at_rest = FleetSettings {
            scaled: (Duration::MAX, Duration::MAX),
            ..settings(BUCKET, 8, 20)
        };
        assert_exact(&score(kind, &at_rest));
    }
}

/// With as many calls as each node admits by itself, `n` nodes admit `n` times, to the call. The time begins with a calendar second.
#[test]
fn nodes_without_sync_admit_n_times() {
    for nodes in [1, 2, 5, 20] {
        let flooded = FleetSettings {
            polite: 0,
            greedy: 2,
            ..settings("fixed-window 10/s", nodes, 40 * nodes as u64)
        };
        let score = score(Kind::NoSync, &flooded);
        // Ten for each of two keys in each of four seconds.
        assert_eq!(score.exact, 80);
        assert_eq!(score.admitted, 80 * nodes as u64);
        assert_eq!(score.over_admitted, 80 * (nodes as u64 - 1));
    }
}

/// A call above the capacity of the lock fails, and takes nothing.
#[test]
fn a_lock_never_admits_too_much_and_is_the_bottleneck() {
    for load in [1, 20, 200] {
        for rule in [BUCKET, WINDOW] {
            let score = score(Kind::Lock, &settings(rule, 20, load));
            assert_eq!(score.over_admitted, 0, "{score:?}");
            assert_eq!(score.failed > 0, load == 200, "{score:?}");
        }
    }
    // One lock is held for a round trip of at least 1 ms: it serves less than 1,000 calls in a second.
    let one_key = FleetSettings {
        greedy: 1,
        polite: 0,
        service: Duration::ZERO,
        ..settings(BUCKET, 20, 200)
    };
    let score = score(Kind::Lock, &one_key);
    // Each call asks for the lock, and each that gets it writes.
    let held = score.store_calls - score.offered;
    assert!((700 * 4..1000 * 4).contains(&held), "{score:?}");
}

#[test]
fn the_store_is_a_bottleneck_too() {
    let settings = FleetSettings {
        service: Duration::from_micros(500),
        ..settings(BUCKET, 20, 1)
    };
    let calm = score(Kind::Central, &settings);
    assert_exact(&calm);
    let flooded = FleetSettings {
        load: 50_000_000,
        ..settings
    };
    let flooded_score = score(Kind::Central, &flooded);
    assert_eq!(flooded_score.over_admitted, 0);
    assert!(
        flooded_score.failed > flooded_score.offered / 2,
        "{flooded_score:?}"
    );
    assert!(flooded_score.p99 > 10 * calm.p99);
    // Leases keep the flood away from the store.
    let leases = score(Kind::Leases, &flooded);
    assert_eq!(leases.over_admitted, 0);
    assert!(leases.failed < flooded_score.failed / 10, "{leases:?}");
}

#[test]
fn leases_never_admit_too_much() {
    for rule in [BUCKET, WINDOW] {
        for (nodes, load) in [(1, 2), (20, 1), (20, 24), (50, 60)] {
            let score = score(Kind::Leases, &settings(rule, nodes, load));
            assert_eq!(score.over_admitted, 0, "{score:?}");
            assert!(score.withheld * 100 <= 5 * score.exact, "{score:?}");
        }
    }
}

/// Without delay and jitter, a call at a time is served, so nothing is overwritten.
#[test]
fn get_then_set_loses_counts_only_under_concurrency() {
    let calm = FleetSettings {
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        service: Duration::ZERO,
        ..settings(BUCKET, 20, 20)
    };
    assert_exact(&score(Kind::GetThenSet, &calm));
    let concurrent = score(Kind::GetThenSet, &settings(BUCKET, 20, 20));
    assert!(concurrent.over_admitted > 0, "{concurrent:?}");
}

/// Under modulo placement nearly all keys move when a node is added, and each begins afresh.
#[test]
fn moved_keys_begin_afresh() {
    let settings = settings(BUCKET, 4, 20);
    let modulo = score(Kind::StickyModulo, &settings);
    let rendezvous = score(Kind::StickyRendezvous, &settings);
    assert!(
        modulo.over_admitted > rendezvous.over_admitted,
        "{modulo:?}"
    );
    // At most one burst for each move of a greedy key, and one for each polite key.
    assert!(modulo.over_admitted <= 2 * 10 * 20, "{modulo:?}");
}

/// A duplicate is recognised: it changes no count.
#[test]
fn duplicates_are_recognised() {
    let once = FleetSettings {
        duplicates: 0,
        jitter: Duration::ZERO,
        service: Duration::ZERO,
        ..settings(BUCKET, 10, 12)
    };
    let twice = FleetSettings {
        duplicates: 1_000_000,
        ..once.clone()
    };
    let (once, twice) = (
        score(Kind::Aggregates, &once),
        score(Kind::Aggregates, &twice),
    );
    assert_eq!(once.admitted, twice.admitted);
    assert_eq!(once.over_admitted, twice.over_admitted);
    assert!(twice.messages > once.messages + once.offered / 2);
}

/// Stale counts admit more the longer they travel.
#[test]
fn stale_counts_admit_too_much() {
    let with = |every: u64| FleetSettings {
        broadcast: Duration::from_millis(every),
        aggregate: Duration::from_millis(every),
        ..settings(BUCKET, 20, 100)
    };
    for kind in [Kind::Broadcast, Kind::Aggregates] {
        let (fast, slow) = (score(kind, &with(2)), score(kind, &with(300)));
        assert!(fast.over_admitted < slow.over_admitted, "{fast:?} {slow:?}");
    }
}

#[test]
fn equal_seeds_give_equal_scores() {
    for kind in Kind::ALL {
        let settings = settings(BUCKET, 5, 6);
        assert_eq!(score(kind, &settings), score(kind, &settings));
        let other = FleetSettings {
            seed: 2,
            ..settings.clone()
        };
        assert_ne!(score(kind, &settings), score(kind, &other));
    }
}

#[test]
fn settings_out_of_range_are_errors() {
    let good = settings(BUCKET, 2, 1);
    for (wrong, part) in [
        (
            FleetSettings {
                nodes: 0,
                ..good.clone()
            },
            "at least 1 of each",
        ),
        (
            FleetSettings {
                warm_up: good.time,
                ..good.clone()
            },
            "a longer time",
        ),
        (
            FleetSettings {
                aggregate: Duration::ZERO,
                ..good.clone()
            },
            "expected some",
        ),
        (
            FleetSettings {
                time: Duration::from_secs(1_000_000),
                ..good.clone()
            },
            "at most 5 million",
        ),
        (settings("leaky-bucket 10/s", 2, 1), "has no meter"),
        (settings("token-bucket 10/s burst=1", 2, 1), "burst"),
    ] {
        let error = run(Kind::Central, &wrong).expect_err("a wrong setting");
        assert!(error.contains(part), "{error}");
    }
}

/// The program draws the figure, and names wrong flags.
#[test]
fn the_figure_is_drawn_from_its_flags() {
    let words = "fleet --nodes 2 --loaded 2 --time 300ms --seed 3";
    let (first, second) = (drawn::draw(words), drawn::draw(words));
    assert!(first.files() == second.files());
    for (file, fleets) in [("fleet.csv", 2 + 10), ("fleet_windows.csv", 2)] {
        assert_eq!(first.table(file).rows().count(), fleets * Kind::ALL.len());
    }
    for (words, part) in [
        ("fleet --rule x", "--rule <RULE>"),
        ("fleet --nodes 0", "--nodes <N>"),
        ("fleet --time 0s", "a longer time"),
        ("fleet --time 10000s", "at most 5 million"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let output = drawn::run(words, folder.path());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.lines().count() == 1,
            "{errors}"
        );
        assert!(errors.contains(part), "{errors}");
        assert!(drawn::files(folder.path()).is_empty());
    }
}
