//! All metrics: their names, types, units and descriptions.
//!
//! A metric of one field of a [snapshot](crate::stats) is declared with the field, and one of a
//! number of a store, a wrapper or a layer where it is [published](publish); all others are in the
//! list here. The table on the page for operators is compared with them.

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Unit, with_recorder};

use super::publish;
use crate::stats::Series;

/// Makes a constant of each metric, and the list of them. The documentation is the description.
macro_rules! families {
    ($($(#[doc = $doc:literal])+ $FAMILY:ident = $name:literal;)*) => {
        $(
            $(#[doc = $doc])+
            pub(super) const $FAMILY: Family = Family($name);
        )*

        /// The metrics that have several series, and their descriptions.
        const SHARED: &[(Family, &str)] = &[$(($FAMILY, concat!($($doc, "\n"),+)),)*];
    };
}

families! {
    // Reported by `Metrics`, event by event.
    /// Decisions of a limit; undecided if the store could not decide.
    REQUESTS = "tollgate_requests_total";
    /// Delays of requests that a limit delayed.
    DELAY = "tollgate_delay_seconds";
    /// Units by which charges were corrected to their actual costs.
    SETTLED_UNITS = "tollgate_settled_units_total";
    /// Decisions of a limit on a dry run, which had no effect.
    DRY_RUN = "tollgate_dry_run_total";
    /// Units that calls hold under a limit of calls in flight.
    HELD_UNITS = "tollgate_held_units";
    /// The most units that calls have held at once.
    MOST_HELD_UNITS = "tollgate_most_held_units";
    /// Units whose calls went on after the maximal hold.
    OUTLASTED_UNITS = "tollgate_outlasted_units_total";
    /// Requests that all limits of a layer exempted.
    EXEMPT = "tollgate_exempt_total";
    /// Requests without a key; the server's fault if it lacks what a key is made of.
    MISSING_KEYS = "tollgate_missing_keys_total";

    // Published for a layer of a file.
    /// Files of limits that took the place of another one, or had mistakes.
    LIMITS_FILES = "tollgate_limits_files_total";

    // Published for the responder of a layer.
    /// Bodies of refused requests that were read, or dropped because of a bound.
    REFUSED_BODIES = "tollgate_refused_bodies_total";

    // Published for a listener.
    /// Connections that a limit closed at once.
    CONNECTIONS_REFUSED = "tollgate_connections_refused_total";
    /// Connections that were closed for what their clients did or left out.
    CONNECTIONS_CLOSED = "tollgate_connections_closed_total";

    // Published for a layer of introspection.
    /// Requests without a token, with one that is not valid, or with one that could not be
    /// checked.
    INTROSPECT_REQUESTS = "tollgate_introspect_requests_total";
    /// Tokens in the cache, including those whose lifetime has ended.
    INTROSPECT_TOKENS = "tollgate_introspect_tokens";

    // Published for any store.
    /// Settlements that failed, may have failed, or refunded nothing.
    STORE_UNSETTLED = "tollgate_store_unsettled_total";

    // Published for a circuit breaker.
    /// 1 for the state of the circuit breaker, 0 for the others; with several shards, the worst
    /// state.
    CIRCUIT_STATE = "tollgate_circuit_state";
}

/// Registers the units and descriptions of all metrics.
pub(super) fn describe_all() {
    for (family, doc) in SHARED.iter().chain(publish::OWN) {
        family.describe(doc);
    }
    publish::describe_snapshots();
}

/// Registers the units and descriptions of the metrics of a snapshot that no other field shares.
pub(super) fn describe<T>(series: &[&[Series<T>]]) {
    for series in series.iter().copied().flatten() {
        if let Some(doc) = series.doc {
            Family(series.metric).describe(doc);
        }
    }
}

/// Sets the metrics of a snapshot, with `name` as the label `kind`.
pub(super) fn set<T>(snapshot: &T, series: &[&[Series<T>]], kind: &'static str, name: &str) {
    for series in series.iter().copied().flatten() {
        let labels = labels(kind, name, series.label.as_slice());
        Family(series.metric).set(labels, (series.read)(snapshot));
    }
}

static METADATA: Metadata<'static> = Metadata::new("tollgate", Level::INFO, Some(module_path!()));

/// A metric with all its time series, which differ in their labels. Its type and its unit are those
/// of the suffix of its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family(pub(super) &'static str);

/// The type of a metric.
#[derive(Clone, Copy, Debug)]
enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

impl Family {
    fn metric_type(self) -> MetricType {
        if self.0.ends_with("_total") {
            MetricType::Counter
        } else if self.0.ends_with("_seconds") {
            MetricType::Histogram
        } else {
            MetricType::Gauge
        }
    }

    fn unit(self) -> Unit {
        if self.0.ends_with("_seconds") {
            Unit::Seconds
        } else if self.0.ends_with("_nanoseconds") {
            Unit::Nanoseconds
        } else {
            Unit::Count
        }
    }

    /// Registers the unit and the description: the first paragraph of the documentation, if there
    /// is any.
    fn describe(self, doc: &str) {
        if doc.is_empty() {
            return;
        }
        let paragraph = doc
            .lines()
            .map(str::trim)
            .take_while(|line| !line.is_empty());
        let paragraph = paragraph.collect::<Vec<_>>().join(" ");
        let help = paragraph.trim_end_matches('.').to_owned().into();
        let (name, unit) = (self.0.into(), Some(self.unit()));
        with_recorder(|recorder| match self.metric_type() {
            MetricType::Counter => recorder.describe_counter(name, unit, help),
            MetricType::Gauge => recorder.describe_gauge(name, unit, help),
            MetricType::Histogram => recorder.describe_histogram(name, unit, help),
        });
    }

    /// Returns the counter with these labels.
    pub(super) fn counter(self, labels: Vec<Label>) -> Counter {
        let key = Key::from_parts(self.0, labels);
        with_recorder(|recorder| recorder.register_counter(&key, &METADATA))
    }

    /// Returns the gauge with these labels.
    pub(super) fn gauge(self, labels: Vec<Label>) -> Gauge {
        let key = Key::from_parts(self.0, labels);
        with_recorder(|recorder| recorder.register_gauge(&key, &METADATA))
    }

    /// Returns the histogram with these labels.
    pub(super) fn histogram(self, labels: Vec<Label>) -> Histogram {
        let key = Key::from_parts(self.0, labels);
        with_recorder(|recorder| recorder.register_histogram(&key, &METADATA))
    }

    /// Sets a counter or a gauge to a value that is counted elsewhere. A counter never falls.
    pub(super) fn set(self, labels: Vec<Label>, value: impl TryInto<u64>) {
        let value = value.try_into().unwrap_or(u64::MAX);
        match self.metric_type() {
            MetricType::Counter => self.counter(labels).absolute(value),
            MetricType::Gauge => self.gauge(labels).set(value as f64),
            // Its values cannot be set.
            MetricType::Histogram => {}
        }
    }
}

/// Returns the label `kind`, for a store or a layer, with this name, and other labels.
pub(super) fn labels(
    kind: &'static str,
    name: &str,
    others: &[(&'static str, &'static str)],
) -> Vec<Label> {
    let mut labels = vec![Label::new(kind, name.to_owned())];
    let others = others.iter();
    labels.extend(others.map(|(key, value)| Label::from_static_parts(key, value)));
    labels
}
