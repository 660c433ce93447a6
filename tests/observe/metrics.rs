//! Metrics against a recorder.

use std::{collections::BTreeMap, time::Duration};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use support::{Random, cases};
use tollgate::{
    Decision, Policy, Timestamp, Verdict,
    key::{Key, MissingKey},
    observe::{Event, Metrics, Observer},
    store::FailureMode,
    testing::Fault,
};

use crate::requests::{PLACES, send, service, store};

/// The values by name and labels, as a line of Prometheus has them. A histogram is the list of its
/// values.
pub(crate) type Values = BTreeMap<String, String>;

/// Returns all values. A histogram's are those since the last call.
pub(crate) fn values(snapshotter: &Snapshotter) -> Values {
    let all = snapshotter.snapshot().into_vec().into_iter();
    let lines = all.map(|(key, _, _, value)| {
        let labels: Vec<_> = key
            .key()
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        let value = match value {
            DebugValue::Counter(count) => count.to_string(),
            DebugValue::Gauge(value) => value.to_string(),
            DebugValue::Histogram(values) => format!("{values:?}"),
        };
        (
            format!("{}{{{}}}", key.key().name(), labels.join(",")),
            value,
        )
    });
    lines.collect()
}

/// Returns values from lines `name{labels} value`.
pub(crate) fn lines(text: &str) -> Values {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.to_owned())
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_policy_and_outcome() {
    for place in PLACES {
        let recorder = DebuggingRecorder::new();
        let _guard = metrics::set_default_local_recorder(&recorder);
        let (store, faults) = store(place, FailureMode::Open);
        let rules = ["token-bucket 2/1h", "leaky-bucket 1/10s queue=1"];
        let service = service(&rules, store, Metrics::new());
        // Admitted, then refused by the first limit; exempt from it; exempt; without a key.
        let requests = [
            ("alice", "bob", 200),
            ("alice", "alice", 200),
            ("alice", "exempt", 429),
            ("alice", "exempt", 429),
            // Delayed by the second limit, and refused.
            ("exempt", "bob", 200),
            ("exempt", "exempt", 200),
            ("-", "-", 400),
            ("mistake", "-", 500),
            ("-", "bob", 400),
        ];
        for (one, two, status) in requests {
            assert_eq!(send(&service, one, two).await, status, "{one} {two}");
        }
        faults.script([Some(Fault::Unavailable)]);
        assert_eq!(send(&service, "alice", "exempt").await, 200);

        let expected = lines(
            "tollgate_requests_total{policy=one,outcome=admitted} 2
            tollgate_requests_total{policy=one,outcome=delayed} 0
            tollgate_requests_total{policy=one,outcome=refused} 2
            tollgate_requests_total{policy=one,outcome=undecided_admitted} 1
            tollgate_requests_total{policy=one,outcome=undecided_refused} 0
            tollgate_requests_total{policy=two,outcome=admitted} 2
            tollgate_requests_total{policy=two,outcome=delayed} 1
            tollgate_requests_total{policy=two,outcome=refused} 0
            tollgate_requests_total{policy=two,outcome=undecided_admitted} 0
            tollgate_requests_total{policy=two,outcome=undecided_refused} 0
            tollgate_delay_seconds{policy=two} [10.0]
            tollgate_exempt_total{} 1
            tollgate_missing_keys_total{fault=client} 2
            tollgate_missing_keys_total{fault=server} 1",
        );
        assert_eq!(values(&recorder.snapshotter()), expected, "{place:?}");
    }
}

fn decision(verdict: Verdict) -> Decision {
    Decision::new(verdict, Timestamp::from_nanos(1 << 60), 1)
}

#[test]
fn settlements_are_counted_in_units_and_dry_runs_by_verdict() {
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, || {
        let (metrics, policy, key) = (Metrics::new(), Policy::new("api"), Key::from("alice"));
        for (charged, actual) in [(5, 3), (7, 0), (1, 10), (4, 4), (0, u64::MAX / 2)] {
            metrics.settled(&policy, &key, charged, actual);
        }
        let verdicts = [
            (Verdict::Allow, 1),
            (Verdict::Delay(Duration::from_secs(1)), 2),
            (Verdict::Refuse, 3),
            (Verdict::Undecided { admitted: true }, 4),
            (Verdict::Undecided { admitted: false }, 5),
        ];
        for (verdict, times) in verdicts {
            let decision = decision(verdict);
            for _ in 0..times {
                metrics.dry_run(&Event::new(&policy, &key, &decision));
            }
        }
    });
    let mut values = values(&recorder.snapshotter());
    values.retain(|_, value| value != "0");
    let expected = lines(&format!(
        "tollgate_settled_units_total{{policy=api,direction=returned}} 9
        tollgate_settled_units_total{{policy=api,direction=added}} {}
        tollgate_dry_run_total{{policy=api,verdict=admitted}} 1
        tollgate_dry_run_total{{policy=api,verdict=delayed}} 2
        tollgate_dry_run_total{{policy=api,verdict=refused}} 3
        tollgate_dry_run_total{{policy=api,verdict=undecided}} 9",
        9 + u64::MAX / 2,
    ));
    assert_eq!(values, expected);
}

/// Any number of policies has a bounded number of labels, and no request is lost.
#[test]
fn policies_beyond_the_capacity_share_a_label() {
    for (capacity, policies) in [(0, 3), (1, 3), (4, 4), (4, 5), (64, 1000)] {
        let recorder = DebuggingRecorder::new();
        metrics::with_local_recorder(&recorder, || {
            let (metrics, key) = (Metrics::with_capacity(capacity), Key::from("alice"));
            let (refused, admitted) = (decision(Verdict::Refuse), decision(Verdict::Allow));
            // A clone of the observer has the same labels.
            for metrics in [&metrics, &metrics.clone()] {
                for number in 0..policies {
                    let policy = Policy::new(&format!("policy {number}"));
                    metrics.refused(&Event::new(&policy, &key, &refused));
                    metrics.admitted(&Event::new(&policy, &key, &admitted));
                }
            }
        });
        let mut values = values(&recorder.snapshotter());
        values.retain(|_, value| value != "0");
        let mut expected = Values::new();
        let mut add = |policy: &str, count: usize| {
            for outcome in ["admitted", "refused"] {
                let name = format!("tollgate_requests_total{{policy={policy},outcome={outcome}}}");
                expected.insert(name, count.to_string());
            }
        };
        for number in 0..capacity.min(policies) {
            add(&format!("policy {number}"), 2);
        }
        if policies > capacity {
            add("other", 2 * (policies - capacity));
        }
        assert_eq!(values, expected, "{policies} policies, {capacity} labels");
    }
}

#[test]
fn several_threads_register_a_policy_once() {
    let metrics = Metrics::with_capacity(8);
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let (decision, key) = (decision(Verdict::Allow), Key::from("alice"));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (metrics, recorder, decision, key) = (&metrics, &recorder, &decision, &key);
            scope.spawn(move || {
                metrics::with_local_recorder(recorder, || {
                    for round in 0..1000 {
                        let policy = Policy::new(&format!("{}", (thread + round) % 12));
                        metrics.admitted(&Event::new(&policy, key, decision));
                    }
                });
            });
        }
    });
    let mut values = values(&snapshotter);
    values.retain(|_, value| value != "0");
    let counts = values.values().map(|value| value.parse::<u64>().unwrap());
    assert_eq!(counts.sum::<u64>(), 8 * 1000);
    // Eight of the twelve, and the others.
    assert_eq!(values.len(), 9, "{values:?}");
}

/// A policy that is gone gives its label back, but for one under which calls are in flight.
#[test]
fn policies_that_are_gone_give_their_labels_back() {
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, || {
        let (metrics, key) = (Metrics::with_capacity(2), Key::from("alice"));
        let decision = decision(Verdict::Allow);
        let held = Policy::new("held");
        metrics.held(&held, &key, 3);
        for number in 0..100 {
            let policy = Policy::new(&format!("policy {number}"));
            metrics.held(&policy, &key, 5);
            metrics.released(&policy, &key, 5);
            metrics.admitted(&Event::new(&policy, &key, &decision));
            // Of another layer.
            metrics.gone(&held);
            metrics.gone(&policy);
            metrics.gone(&policy);
        }
        metrics.released(&held, &key, 3);
        metrics.held(&held, &key, 2);
        metrics.refresh();
        // Its greatest number of calls begins anew with it.
        let last = Policy::new("policy 99");
        metrics.held(&last, &key, 1);
        for further in ["one more", "another"] {
            metrics.admitted(&Event::new(&Policy::new(further), &key, &decision));
        }
    });
    let values = values(&recorder.snapshotter());
    let admitted = |policy: &str| {
        let name = format!("tollgate_requests_total{{policy={policy},outcome=admitted}}");
        values.get(&name).map(String::as_str)
    };
    for number in 0..100 {
        assert_eq!(admitted(&format!("policy {number}")), Some("1"));
    }
    assert_eq!((admitted("one more"), admitted("other")), (None, Some("2")));
    let most = |policy: &str| &values[&format!("tollgate_most_held_units{{policy={policy}}}")];
    assert_eq!((&**most("held"), &**most("policy 99")), ("3", "1"));
    assert_eq!(
        (
            &**most("policy 98"),
            &*values["tollgate_held_units{policy=held}"]
        ),
        ("0", "2")
    );
}

/// The gauges of held units. A snapshot has what was added since the last one.
#[derive(Debug, Default)]
struct Held(BTreeMap<String, f64>);

impl Held {
    fn add(&mut self, snapshotter: &Snapshotter) {
        for (name, value) in values(snapshotter) {
            if name.starts_with("tollgate_held_units") {
                *self.0.entry(name).or_default() += value.parse::<f64>().unwrap();
            }
        }
    }
}

/// Calls in flight end under another label than they began under, if a policy got one, or lost it,
/// meanwhile.
#[test]
fn held_units_are_never_negative_and_all_are_given_back() {
    for seed in 0..cases(1_000) {
        let mut random = Random::new(seed);
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        metrics::with_local_recorder(&recorder, || {
            let metrics = Metrics::with_capacity(random.below(4) as usize);
            let policies = ["a", "b", "c", "d", "e"].map(Policy::new);
            let (key, decision) = (Key::from("alice"), decision(Verdict::Allow));
            let mut in_flight = Vec::new();
            let steps = random.below(40);
            let mut gauges = Held::default();
            let mut check = |in_flight: &[(&Policy, u64)]| {
                gauges.add(&snapshotter);
                let all: u64 = in_flight.iter().map(|(_, units)| units).sum();
                let context = format!("{seed}: {gauges:?} of {in_flight:?}");
                assert!(gauges.0.values().all(|gauge| *gauge >= 0.0), "{context}");
                assert_eq!(gauges.0.values().sum::<f64>(), all as f64, "{context}");
            };
            for _ in 0..steps {
                let policy = &policies[random.below(5) as usize];
                match random.below(6) {
                    0 => metrics.gone(policy),
                    1 => metrics.admitted(&Event::new(policy, &key, &decision)),
                    2 | 3 => {
                        let units = 1 + random.below(3);
                        metrics.held(policy, &key, units);
                        in_flight.push((policy, units));
                    }
                    _ if in_flight.is_empty() => {}
                    _ => {
                        let ended = random.below(in_flight.len() as u64) as usize;
                        let (policy, units) = in_flight.swap_remove(ended);
                        metrics.released(policy, &key, units);
                    }
                }
                check(&in_flight);
            }
            random.shuffle(&mut in_flight);
            while let Some((policy, units)) = in_flight.pop() {
                metrics.released(policy, &key, units);
                check(&in_flight);
            }
        });
    }
}

/// A call that begins while its policy gives its label back is counted under one label or another.
#[test]
fn threads_that_begin_and_end_calls_leave_no_held_units() {
    let metrics = Metrics::with_capacity(2);
    let recorder = DebuggingRecorder::new();
    let (snapshotter, rounds) = (recorder.snapshotter(), cases(20_000));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (metrics, recorder) = (&metrics, &recorder);
            scope.spawn(move || {
                metrics::with_local_recorder(recorder, || {
                    let (mut random, key) = (Random::new(thread), Key::from("alice"));
                    let policies = ["a", "b", "c"].map(Policy::new);
                    for _ in 0..rounds {
                        let policy = random.choose(&policies);
                        metrics.held(policy, &key, 1);
                        metrics.gone(random.choose(&policies));
                        metrics.released(policy, &key, 1);
                        metrics.gone(policy);
                    }
                });
            });
        }
    });
    let mut gauges = Held::default();
    gauges.add(&snapshotter);
    assert!(gauges.0.values().all(|gauge| *gauge == 0.0), "{gauges:?}");
}

/// Metrics without a recorder are lost, and do no harm.
#[test]
fn without_a_recorder_nothing_happens() {
    let metrics = Metrics::new();
    let (policy, key) = (Policy::new("api"), Key::from("alice"));
    metrics.admitted(&Event::new(&policy, &key, &decision(Verdict::Allow)));
    metrics.exempt();
    metrics.missing_key(&MissingKey::new("none"));
    metrics.settled(&policy, &key, 1, 0);
    metrics.refresh();
    metrics.gone(&policy);
    Metrics::describe();
}
