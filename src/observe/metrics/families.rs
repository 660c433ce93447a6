//! All metrics: their names, types, units and descriptions.
//!
//! A metric of one field of a [snapshot](crate::stats) is declared with the field; all others are
//! in the list here. The table on the page for operators is compared with them.

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

        /// The metrics that are no fields of snapshots, or of several, and their descriptions.
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

    // Published for a layer.
    /// Delayed or waiting requests that were dropped before their turn.
    LAYER_CANCELLED = "tollgate_layer_cancelled_total";
    /// Limits that share the states of this layer's now, as both have no name.
    LAYER_COLLISIONS = "tollgate_layer_collisions";
    /// Requests that were refused, or decided twice, because the server is set up wrongly.
    LAYER_MISCONFIGURED = "tollgate_layer_misconfigured_total";
    /// Charges that may not have been corrected, in the layer's store.
    LAYER_UNSETTLED = "tollgate_layer_unsettled_total";

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
    /// Calls that the store failed.
    STORE_FAILURES = "tollgate_store_failures_total";
    /// Calls that failed because the server takes no writes.
    STORE_UNWRITTEN = "tollgate_store_unwritten_total";
    /// Calls that lost every race for a key.
    STORE_CONTENTIONS = "tollgate_store_contentions_total";
    /// Calls that the store does not support.
    STORE_UNSUPPORTED = "tollgate_store_unsupported_total";
    /// Settlements that failed, may have failed, or refunded nothing.
    STORE_UNSETTLED = "tollgate_store_unsettled_total";
    /// Calls without an answer within the deadline.
    STORE_TIMEOUTS = "tollgate_store_timeouts_total";

    // Published for wrappers.
    /// 1 for the state of the circuit breaker, 0 for the others; with several shards, the worst
    /// state.
    CIRCUIT_STATE = "tollgate_circuit_state";
    /// Times that a circuit opened.
    CIRCUIT_OPENED = "tollgate_circuit_opened_total";
    /// Calls that failed without reaching the store.
    CIRCUIT_REJECTED = "tollgate_circuit_rejected_total";
    /// Calls that probed the store while the circuit was half-open.
    CIRCUIT_PROBES = "tollgate_circuit_probes_total";
    /// Calls that the local store decided.
    FALLBACK_DECIDED = "tollgate_fallback_decided_total";
    /// Calls that were refused because this node has no share of their rule.
    FALLBACK_TURNED_AWAY = "tollgate_fallback_turned_away_total";
    /// Cached refusals, including those that have ended.
    REMEMBERED_REFUSALS = "tollgate_remembered_refusals";
    /// Calls that were refused from the cache.
    REMEMBERED_HITS = "tollgate_remembered_refusals_hits_total";
    /// Refusals that were stored in the cache.
    REMEMBERED_STORED = "tollgate_remembered_refusals_stored_total";
    /// Refusals that were evicted from the cache before they ended.
    REMEMBERED_EVICTED = "tollgate_remembered_refusals_evicted_total";
    /// Blocks of keys that this process made.
    BLOCKS_MADE = "tollgate_blocks_made_total";
    /// Blocks that could not be made.
    BLOCKS_FAILED = "tollgate_blocks_failed_total";
    /// Calls that were refused because a key was blocked.
    BLOCKS_REFUSED = "tollgate_blocks_refused_total";
    /// Refusals that do not lead to a block, because too many other keys were refused.
    BLOCKS_UNCOUNTED = "tollgate_blocks_uncounted_refusals_total";

    // Published for stores of counters, as `MemcachedCounters`.
    /// Counters whose value was not a number and was removed.
    MEMCACHED_HEALED = "tollgate_memcached_healed_total";
}

/// Registers the units and descriptions of all metrics.
pub(super) fn describe_all() {
    for (family, doc) in SHARED {
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
pub(super) struct Family(&'static str);

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

    /// Registers the unit and the description: the first paragraph of the documentation.
    fn describe(self, doc: &str) {
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
