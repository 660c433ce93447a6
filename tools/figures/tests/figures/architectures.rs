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

/// With as many calls as each node admits by itself, `n` nodes admit `n` times, to the call. The
/// time begins with a calendar second.
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
    // One lock is held for a round trip of at least 1 ms: it serves less than 1,000 calls in a
    // second.
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
    for kind in [Kind::Aggregates, Kind::Kafka20ms, Kind::Kafka500ms] {
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
        let (once, twice) = (score(kind, &once), score(kind, &twice));
        assert_eq!(once.admitted, twice.admitted);
        assert_eq!(once.over_admitted, twice.over_admitted);
        assert!(twice.messages > once.messages, "{once:?} {twice:?}");
    }
}

const SYNCED: [Kind; 3] = [Kind::Synced50ms, Kind::Synced200ms, Kind::Synced1s];
const KAFKA: [Kind; 2] = [Kind::Kafka20ms, Kind::Kafka500ms];

/// B1 by another meter, for several bounds and rules. A bound of 1 is reached, so a smaller one
/// would be noticed.
#[test]
fn synced_nodes_keep_their_bound() {
    let mut reached = 0;
    for rule in [BUCKET, WINDOW, "fixed-window 10/s"] {
        for (nodes, load) in [(1, 2), (2, 40), (20, 24), (20, 200)] {
            for max_unsynced in [1, 2, 10] {
                let settings = FleetSettings {
                    max_unsynced,
                    ..settings(rule, nodes, load)
                };
                let bound = (nodes as u64 - 1) * max_unsynced;
                for kind in SYNCED {
                    let score = score(kind, &settings);
                    assert_eq!(score.overshoot_bound, Some(bound));
                    assert!(score.overshoot <= bound, "{rule}: {score:?}");
                    assert_eq!(score.failed, 0, "{score:?}");
                    reached += u64::from(score.overshoot == bound && nodes > 1);
                }
            }
        }
    }
    assert!(reached > 0, "the bound is tight");
}

/// Without being ahead, each call is one call to the store, at the same instant, with the same
/// answer.
#[test]
fn nodes_that_may_not_be_ahead_are_the_central_store() {
    for rule in [BUCKET, WINDOW] {
        for (nodes, load) in [(1, 2), (20, 24), (20, 200)] {
            let settings = FleetSettings {
                max_unsynced: 0,
                ..settings(rule, nodes, load)
            };
            let central = score(Kind::Central, &settings);
            assert_exact(&central);
            for kind in SYNCED {
                let synced = score(kind, &settings);
                assert_eq!(synced.overshoot_bound, Some(0));
                let expected = Score {
                    kind,
                    overshoot_bound: Some(0),
                    ..central.clone()
                };
                assert_eq!(synced, expected);
            }
        }
    }
}

/// One node knows all that was admitted: it is never above the limit, and no unit is lost.
#[test]
fn a_synced_node_alone_is_exact() {
    for rule in [BUCKET, WINDOW, "fixed-window 10/s"] {
        for kind in [SYNCED.as_slice(), &KAFKA].concat() {
            let score = score(kind, &settings(rule, 1, 12));
            assert_eq!((score.over_admitted, score.overshoot), (0, 0), "{score:?}");
            assert_eq!(score.withheld, 0, "{score:?}");
        }
    }
}

/// Small fleets are played in each run, the whole figure in long ones.
#[test]
fn small_fleets_are_those_that_are_checked_in() {
    let mut played = 0;
    for (name, rule) in [("fleet.csv", BUCKET), ("fleet_windows.csv", WINDOW)] {
        let table = drawn::read_table(&drawn::checked_in(), name);
        let small =
            |row: &drawn::Row<'_>| row.text("sweep") == "nodes" && row.number("nodes") <= 5.;
        for row in table.rows().filter(small) {
            let named = |kind: &Kind| kind.name() == row.text("architecture");
            let kind = Kind::ALL.into_iter().find(named).expect("a kind");
            let nodes = row.number("nodes") as usize;
            let rule = rule.parse().expect("a rule");
            let fleet = FleetSettings::new(rule, nodes, 1_200_000 * nodes as u64);
            let score = score(kind, &fleet);
            let counts = [
                ("offered", score.offered),
                ("admitted", score.admitted),
                ("exact", score.exact),
                ("over_admitted", score.over_admitted),
                ("overshoot", score.overshoot),
                ("wrongly_refused", score.wrongly_refused),
                ("withheld", score.withheld),
                ("failed", score.failed),
                ("p50_us", score.p50 / 1000),
                ("p99_us", score.p99 / 1000),
            ];
            for (column, count) in counts {
                assert_eq!(row.text(column), count.to_string(), "{column}: {score:?}");
            }
            played += 1;
        }
    }
    assert!(played > 60, "{played} fleets");
}

/// The rows of a kind in each sweep of the tables that are checked in, in order. Other tests play
/// and draw them again.
fn checked_in(kind: Kind) -> Vec<Point> {
    let read = |name| drawn::read_table(&drawn::checked_in(), name);
    let tables = ["fleet.csv", "fleet_windows.csv"].map(read);
    let rows = tables.iter().flat_map(drawn::Table::rows);
    rows.filter(|row| row.text("architecture") == kind.name())
        .map(|row| Point {
            nodes: row.number("nodes"),
            overshoot: row.number("overshoot"),
            bound: row.text("overshoot_bound").parse().ok(),
            over_admission: row.number("over_admission"),
            store_calls: row.number("store_calls_per_decision"),
        })
        .collect()
}

/// A point of a figure.
#[derive(Debug)]
struct Point {
    nodes: f64,
    overshoot: f64,
    bound: Option<f64>,
    over_admission: f64,
    store_calls: f64,
}

/// Eight fleets by nodes, ten by load, and eight under windows.
const POINTS: usize = 8 + 10 + 8;

#[test]
fn the_bound_holds_in_every_point_of_the_figure() {
    let max_unsynced =
        FleetSettings::new(BUCKET.parse().expect("a rule"), 1, 1).max_unsynced as f64;
    for kind in SYNCED {
        let points = checked_in(kind);
        assert_eq!(points.len(), POINTS);
        for point in points {
            let bound = (point.nodes - 1.0) * max_unsynced;
            assert_eq!(point.bound, Some(bound), "{kind:?}: {point:?}");
            assert!(point.overshoot <= bound, "{kind:?}: {point:?}");
        }
    }
    // The totals of Kafka are stale, so it has no such bound, and the figure shows it.
    for kind in KAFKA {
        let points = checked_in(kind);
        assert_eq!(points.len(), POINTS);
        assert!(points.iter().all(|point| point.bound.is_none()));
        let is_above = |point: &Point| point.overshoot > (point.nodes - 1.0) * max_unsynced;
        assert!(points.iter().any(is_above), "{kind:?}");
    }
}

#[test]
fn a_shorter_period_or_lag_differs_less_and_costs_more() {
    let pairs = [
        (Kind::Synced50ms, Kind::Synced200ms),
        (Kind::Synced200ms, Kind::Synced1s),
        (Kind::Kafka20ms, Kind::Kafka500ms),
    ];
    for (short, long) in pairs {
        let points = checked_in(short).into_iter().zip(checked_in(long));
        let [mut over_short, mut over_long] = [0.0; 2];
        for (a, b) in points {
            assert!(a.overshoot <= b.overshoot, "{short:?}: {a:?} {b:?}");
            if KAFKA.contains(&short) {
                assert_eq!((a.store_calls, b.store_calls), (0.0, 0.0));
            } else {
                assert!(a.store_calls > b.store_calls, "{short:?}: {a:?} {b:?}");
            }
            over_short += a.over_admission;
            over_long += b.over_admission;
        }
        assert!(over_short < 0.9 * over_long, "{over_short} {over_long}");
    }
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
    let log = settings("sliding-log 10/s", 2, 1);
    assert!(run(Kind::Leases, &log).is_ok());
    let error = run(Kind::Synced1s, &log).expect_err("units that cannot be pushed later");
    assert!(error.contains("with background synchronisation"), "{error}");
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
