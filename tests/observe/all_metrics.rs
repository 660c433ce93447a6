//! The list of all metrics: what is described, what is used, and what the page for operators lists.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Mutex,
    time::Duration,
};

use metrics::{KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_util::{MetricKind, debugging::DebuggingRecorder};
use tollgate::{
    Decision, Policy, Timestamp, Verdict,
    key::{Key, MissingKey, introspect::IntrospectStats},
    listen::ConnectionStats,
    observe::{Event, Metrics, Observer, Publish},
    respond::DrainStats,
    store::{CasStats, CounterStats, LeaseStats, LocalStats, ScriptStats, SyncStats},
};

use crate::{metrics::values, publish::publish_everything};

/// Reports and publishes everything, so that each metric has a value.
fn report_everything() {
    let (metrics, policy, key) = (Metrics::new(), Policy::new("api"), Key::from("alice"));
    let wait = Duration::from_secs(1);
    let decision = Decision::new(Verdict::Delay(wait), Timestamp::from_nanos(1 << 60), 1);
    let event = Event::new(&policy, &key, &decision);
    metrics.delayed(&event, wait);
    metrics.dry_run(&event);
    metrics.exempt();
    metrics.missing_key(&MissingKey::new("none"));
    metrics.missing_key(&MissingKey::misconfigured("none"));
    metrics.settled(&policy, &key, 1, 0);
    metrics.held(&policy, &key, 1);
    publish_everything();
}

/// Everything that is described is used, with the type and the unit that its name ends with.
#[test]
fn every_metric_is_described_with_its_unit_and_kind() {
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, || {
        Metrics::describe();
        report_everything();
    });
    for (key, unit, description, _) in recorder.snapshotter().snapshot().into_vec() {
        let name = key.key().name();
        let (unit, description) = (unit.unwrap(), description.unwrap());
        assert!(description.len() > 5, "{name}");
        let suffix = match (key.kind(), unit) {
            (MetricKind::Counter, Unit::Count) => "_total",
            (MetricKind::Histogram, Unit::Seconds) => "_seconds",
            (MetricKind::Gauge, Unit::Count) => "",
            (MetricKind::Gauge, Unit::Nanoseconds) => "_nanoseconds",
            other => panic!("{name}: {other:?}"),
        };
        assert!(
            name.starts_with("tollgate_") && name.ends_with(suffix),
            "{name}"
        );
    }
}

/// The names, types and descriptions of metrics, in the order in which they are described.
#[derive(Default)]
struct Descriptions(Mutex<Vec<(String, &'static str, String)>>);

impl Descriptions {
    fn add(&self, name: KeyName, kind: &'static str, help: SharedString) {
        let description = (name.as_str().to_owned(), kind, help.into_owned());
        self.0.lock().unwrap().push(description);
    }
}

impl Recorder for Descriptions {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.add(name, "counter", help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.add(name, "gauge", help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.add(name, "histogram", help);
    }

    fn register_counter(&self, _: &metrics::Key, _: &Metadata<'_>) -> metrics::Counter {
        metrics::Counter::noop()
    }

    fn register_gauge(&self, _: &metrics::Key, _: &Metadata<'_>) -> metrics::Gauge {
        metrics::Gauge::noop()
    }

    fn register_histogram(&self, _: &metrics::Key, _: &Metadata<'_>) -> metrics::Histogram {
        metrics::Histogram::noop()
    }
}

/// Returns the labels of each metric, as the page for operators writes them. The names of policies,
/// stores, layers and listeners are the program's.
fn labels_of_everything() -> BTreeMap<String, String> {
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, report_everything);
    let mut labels = BTreeMap::<String, BTreeMap<(bool, String), BTreeSet<String>>>::new();
    for (key, ..) in recorder.snapshotter().snapshot().into_vec() {
        let labels = labels.entry(key.key().name().to_owned()).or_default();
        for label in key.key().labels() {
            let is_fixed = !["policy", "store", "layer", "listener"].contains(&label.key());
            let values = labels
                .entry((is_fixed, label.key().to_owned()))
                .or_default();
            if is_fixed {
                values.insert(format!("`{}`", label.value()));
            }
        }
    }
    let text = |((_, key), values): (&(bool, String), &BTreeSet<String>)| match values.is_empty() {
        true => format!("`{key}`"),
        false => {
            let values: Vec<_> = values.iter().map(String::as_str).collect();
            format!("`{key}`: {}", values.join(", "))
        }
    };
    let labels = labels.into_iter().map(|(name, labels)| {
        let labels: Vec<_> = labels.iter().map(text).collect();
        (name, labels.join("; "))
    });
    labels.collect()
}

/// The table on the page for operators has a row for each metric that is described and used, and no
/// other row.
#[test]
fn the_page_for_operators_lists_every_metric() {
    let descriptions = Descriptions::default();
    metrics::with_local_recorder(&descriptions, Metrics::describe);
    let mut labels = labels_of_everything();
    let mut expected = Vec::new();
    for (name, kind, help) in descriptions.0.into_inner().unwrap() {
        // A link would be shown to Prometheus as it is written.
        assert!(!help.contains("]("), "{name}: {help}");
        let labels = labels.remove(&name);
        let labels = labels.unwrap_or_else(|| panic!("{name} is never set, or described twice"));
        let row = format!("| `{name}` | {kind} | {labels} | {help} |");
        expected.push(row.replace("|  |", "| |"));
    }
    assert!(labels.is_empty(), "not described: {labels:?}");
    let page = include_str!("../../src/operations.md");
    let (_, table) = page
        .split_once("| metric | type | labels | meaning |\n|---|---|---|---|\n")
        .expect("the table");
    let table: Vec<_> = table.lines().take_while(|row| !row.is_empty()).collect();
    assert!(
        table == expected,
        "the table of metrics should be:\n{}",
        expected.join("\n")
    );
    // Alerts and other tables of the page.
    let names = page.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    for name in names.filter(|name| name.starts_with("tollgate_")) {
        let row = format!("| `{name}` |");
        assert!(table.iter().any(|line| line.starts_with(&row)), "{name}");
    }
}

/// Each field of a snapshot is published, but for the sum of others.
#[test]
fn each_field_of_a_snapshot_is_published() {
    fn assert_published<T: Publish + Default + Debug>(unpublished: usize) {
        let recorder = DebuggingRecorder::new();
        let stats = T::default();
        metrics::with_local_recorder(&recorder, || stats.publish("any"));
        let text = format!("{stats:?}");
        let fields = text.matches(": ").count();
        let series = values(&recorder.snapshotter()).len();
        assert_eq!(series + unpublished, fields, "{text}");
    }

    // `started` is the sum of what became of the bodies.
    assert_published::<DrainStats>(1);
    assert_published::<IntrospectStats>(0);
    assert_published::<ConnectionStats>(0);
    assert_published::<LeaseStats>(0);
    assert_published::<SyncStats>(0);
    assert_published::<LocalStats>(0);
    assert_published::<ScriptStats>(0);
    assert_published::<CasStats>(0);
    assert_published::<CounterStats>(0);
}
