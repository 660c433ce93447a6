//! Metrics through the facade `metrics`: an observer of layers, and the counters of stores and
//! layers.
//!
//! The metrics of a policy are found by its digest, in a table that is replaced as a whole. The
//! facade's macros would hash a name and its labels for each event, and allocate them. The number
//! of policies is bounded, because most recorders never forget a label.

mod families;
mod publish;

pub use self::publish::Publish;

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use foldhash::fast::FixedState;
use metrics::{Counter, Gauge, Label};

use self::families::{
    DELAY, DRY_RUN, EXEMPT, Family, HELD_UNITS, MISSING_KEYS, MOST_HELD_UNITS, OUTLASTED_UNITS,
    REQUESTS, SETTLED_UNITS,
};
use super::{Event, Observer};
use crate::{
    decision::{Decision, Verdict},
    key::{Key, MissingKey},
    locks::lock,
    policy::Policy,
};

/// Reports the events of a layer through the facade [`metrics`], for Prometheus and others.
///
/// Install the recorder of your exporter first: metrics are registered at the first event of a
/// policy, and those that are registered before there is a recorder are lost. Clones share what
/// they have registered. Several layers may report to one `Metrics`, or to one each.
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use tollgate::{RateLimitLayer, TokenBucket, observe::Metrics};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
/// let recorder = metrics_util::debugging::DebuggingRecorder::new();
/// let metrics = recorder.snapshotter();
/// recorder.install().expect("there is no other recorder");
///
/// Metrics::describe();
/// let service = ServiceBuilder::new()
///     .layer(
///         RateLimitLayer::new(TokenBucket::per_minute(2))
///             .named("api")
///             .observe(Metrics::new()),
///     )
///     .service(service_fn(async |_: Request<()>| {
///         Ok::<_, Infallible>(Response::new(String::new()))
///     }));
/// for _ in 0..5 {
///     service.clone().oneshot(Request::new(())).await?;
/// }
///
/// // tollgate_requests_total{policy="api",outcome="admitted"} 2
/// // tollgate_requests_total{policy="api",outcome="refused"}  3
/// # let mut counts: Vec<_> = metrics.snapshot().into_vec().into_iter().map(|(key, _, _, value)| (key.key().labels().map(|label| label.value().to_owned()).collect::<Vec<_>>().join(" "), value)).collect();
/// # counts.retain(|(_, value)| *value != metrics_util::debugging::DebugValue::Counter(0));
/// # counts.sort_by(|a, b| a.0.cmp(&b.0));
/// # use metrics_util::debugging::DebugValue::Counter;
/// # assert_eq!(counts, [("api admitted".to_owned(), Counter(2)), ("api refused".to_owned(), Counter(3))]);
/// # Ok(()) }
/// ```
///
/// # Metrics
///
/// The page for operators lists [all metrics](crate::operations#all-metrics). This observer reports
/// the first nine. [`Publish`](crate::observe::Publish) sets the others.
///
/// A limit's decision is one request, so a layer with two limits counts an admitted request for two
/// policies.
///
/// # Labels
///
/// Keys are no labels, and no label has a value from a request. A policy is a label, because the
/// program names its policies. For programs that name them from data, only the [first
/// 64](Self::with_capacity) policies have a label of their own; all others have the label `other`.
/// The labels `store` and `layer` are the names that `Publish` is given.
///
/// # Limits that are gone
///
/// A limit that is no longer in a file of limits gives its label back. The facade cannot take back
/// what an exporter shows, so the last values stay, unless the exporter drops what is idle. Then
/// call [`refresh`](Self::refresh) for each scrape, or it drops limits in use too, for ever.
///
/// # Histograms
///
/// Choose the buckets of `tollgate_delay_seconds` in your exporter: the longest delay is the
/// longest queue that a rule allows.
///
/// # Cost
///
/// An event looks its policy up by a number, without a lock and without allocation, and adds to a
/// counter of the recorder. Delays allocate.
#[doc(alias("prometheus", "opentelemetry"))]
#[derive(Clone)]
#[must_use = "metrics count nothing until a layer reports to them"]
pub struct Metrics {
    registered: Arc<Registered>,
}

/// The metrics that all clones have registered.
struct Registered {
    policies: PolicyTable,
    exempt: OnceLock<Counter>,
    missing_by_client: OnceLock<Counter>,
    missing_by_server: OnceLock<Counter>,
}

impl Metrics {
    /// Creates an observer with labels for 64 policies.
    pub fn new() -> Self {
        Self::with_capacity(64)
    }

    /// Creates an observer with labels for this number of policies; further ones have the label
    /// `other`.
    ///
    /// ```
    /// use tollgate::{RateLimitLayer, TokenBucket, observe::Metrics};
    ///
    /// let layer =
    ///     RateLimitLayer::new(TokenBucket::per_second(10)).observe(Metrics::with_capacity(500));
    /// # let _ = layer;
    /// ```
    pub fn with_capacity(policies: usize) -> Self {
        Self {
            registered: Arc::new(Registered {
                policies: PolicyTable::new(policies),
                exempt: OnceLock::new(),
                missing_by_client: OnceLock::new(),
                missing_by_server: OnceLock::new(),
            }),
        }
    }

    /// Marks the metrics of all policies in use as recent, for an exporter that drops those that
    /// were not updated for a while, such as that of Prometheus with an `idle_timeout`. Call it for
    /// each scrape, before the metrics are written, and at intervals below that timeout.
    ///
    /// The exporter of Prometheus also needs upkeep at intervals; here, one task does both. Without
    /// it, each sample of a histogram is kept until the next scrape.
    ///
    /// ```
    /// use tollgate::observe::Metrics;
    /// use metrics_util::MetricKindMask;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let metrics = Metrics::new();
    /// let exporter = metrics_exporter_prometheus::PrometheusBuilder::new()
    ///     .idle_timeout(MetricKindMask::ALL, Some(std::time::Duration::from_secs(600)))
    ///     .build_recorder()
    ///     .handle();
    /// tokio::spawn({
    ///     let (metrics, exporter) = (metrics.clone(), exporter.clone());
    ///     async move {
    ///         loop {
    ///             tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    ///             metrics.refresh();
    ///             exporter.run_upkeep();
    ///         }
    ///     }
    /// });
    /// let scrape = move || {
    ///     metrics.refresh();
    ///     exporter.render()
    /// };
    /// # scrape(); }
    /// ```
    pub fn refresh(&self) {
        let registered = &*self.registered;
        registered.policies.refresh();
        let missing = [&registered.missing_by_client, &registered.missing_by_server];
        for counter in missing.into_iter().chain([&registered.exempt]) {
            touch(counter.get());
        }
    }

    /// Registers the units and descriptions of [all metrics](crate::operations#all-metrics). Call
    /// it once the recorder is installed.
    pub fn describe() {
        families::describe_all();
    }
}

impl Metrics {
    /// Reports to the metrics of a policy.
    #[inline]
    fn of(&self, policy: &Policy, report: impl FnOnce(&PolicyMetrics)) {
        self.registered.policies.report(policy, report);
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl_debug!(Metrics);

impl Observer for Metrics {
    #[inline]
    fn admitted(&self, event: &Event<'_>) {
        self.of(event.policy(), |metrics| metrics.admitted());
    }

    fn delayed(&self, event: &Event<'_>, wait: Duration) {
        self.of(event.policy(), |metrics| metrics.delayed(wait));
    }

    #[inline]
    fn refused(&self, event: &Event<'_>) {
        self.of(event.policy(), |metrics| metrics.refused());
    }

    fn undecided(&self, event: &Event<'_>) {
        self.of(event.policy(), |metrics| {
            metrics.undecided(event.decision())
        });
    }

    fn exempt(&self) {
        let exempt = &self.registered.exempt;
        exempt
            .get_or_init(|| EXEMPT.counter(Vec::new()))
            .increment(1);
    }

    fn missing_key(&self, missing: &MissingKey) {
        let (counter, fault) = if missing.is_server_fault() {
            (&self.registered.missing_by_server, "server")
        } else {
            (&self.registered.missing_by_client, "client")
        };
        let register = || MISSING_KEYS.counter(vec![Label::from_static_parts("fault", fault)]);
        counter.get_or_init(register).increment(1);
    }

    fn settled(&self, policy: &Policy, _: &Key, charged: u64, actual: u64) {
        self.of(policy, |metrics| metrics.settled(charged, actual));
    }

    fn dry_run(&self, event: &Event<'_>) {
        self.of(event.policy(), |metrics| metrics.dry_run(event.decision()));
    }

    fn held(&self, policy: &Policy, _: &Key, units: u64) {
        let policies = &self.registered.policies;
        while !policies.report(policy, |metrics| metrics.held().add(units)) {
            policies.wait_for_change();
        }
    }

    fn outlasted(&self, policy: &Policy, _: &Key, units: u64) {
        self.of(policy, |metrics| metrics.held().outlasted.increment(units));
    }

    fn released(&self, policy: &Policy, _: &Key, units: u64) {
        let policies = &self.registered.policies;
        let rest = policies.report(policy, |metrics| metrics.held().subtract(units));
        if rest > 0 {
            // The call began before its policy had a label of its own.
            policies.other().held().subtract(rest);
        }
    }

    fn gone(&self, policy: &Policy) {
        self.registered.policies.remove(policy);
    }
}

/// The metrics of a bounded number of policies.
#[derive(Debug)]
struct PolicyTable {
    /// By the digests of their names, as in stores.
    policies: ArcSwap<Policies>,
    /// Locked by who adds or removes one.
    change: Mutex<()>,
    most: usize,
    /// The metrics of all further policies.
    other: OnceLock<PolicyMetrics>,
}

type Policies = HashMap<u64, Arc<PolicyMetrics>, FixedState>;

impl PolicyTable {
    /// Creates a table for `most` policies.
    fn new(most: usize) -> Self {
        Self {
            policies: ArcSwap::default(),
            change: Mutex::default(),
            most,
            other: OnceLock::new(),
        }
    }

    /// Reports to the metrics of a policy, or to those of all further policies if it is one too
    /// many.
    #[inline]
    fn report<T>(&self, policy: &Policy, report: impl FnOnce(&PolicyMetrics) -> T) -> T {
        let policies = self.policies.load();
        match policies.get(&policy.name_digest()) {
            Some(metrics) => report(metrics),
            None => match self.add(policy) {
                Some(metrics) => report(&metrics),
                None => report(self.other()),
            },
        }
    }

    /// Returns the metrics of all further policies.
    fn other(&self) -> &PolicyMetrics {
        self.other.get_or_init(|| PolicyMetrics::new("other"))
    }

    /// Waits until a policy that is being added or removed was.
    #[cold]
    fn wait_for_change(&self) {
        drop(lock(&self.change));
    }

    /// Returns the metrics of a policy that was not found; `None` if it is one too many.
    #[cold]
    fn add(&self, policy: &Policy) -> Option<Arc<PolicyMetrics>> {
        if self.policies.load().len() >= self.most {
            return None;
        }
        let _one_at_a_time = lock(&self.change);
        let mut policies = Policies::clone(&self.policies.load());
        let is_full = policies.len() >= self.most;
        let metrics = match policies.entry(policy.name_digest()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if is_full => return None,
            Entry::Vacant(entry) => entry.insert(Arc::new(PolicyMetrics::new(policy.name()))),
        };
        let metrics = Arc::clone(metrics);
        self.policies.store(Arc::new(policies));
        Some(metrics)
    }

    /// Gives back the label of a policy, unless calls of another layer are in flight under it.
    fn remove(&self, policy: &Policy) {
        let _one_at_a_time = lock(&self.change);
        let mut policies = Policies::clone(&self.policies.load());
        let removed = policies.remove(&policy.name_digest());
        if removed.is_some_and(|metrics| metrics.end()) {
            self.policies.store(Arc::new(policies));
        }
    }

    fn refresh(&self) {
        for metrics in self.policies.load().values() {
            metrics.refresh();
        }
        if let Some(metrics) = self.other.get() {
            metrics.refresh();
        }
    }
}

/// Registers the counters of a family for a policy, one for each value of a further label.
fn counters<const N: usize>(
    family: Family,
    policy: &Label,
    label: &'static str,
    values: [&'static str; N],
) -> [Counter; N] {
    values.map(|value| family.counter(vec![policy.clone(), Label::from_static_parts(label, value)]))
}

/// Updates a counter without a change.
fn touch<'a>(counters: impl IntoIterator<Item = &'a Counter>) {
    for counter in counters {
        counter.increment(0);
    }
}

/// The registered metrics of one policy. Those of rare features are registered when first needed.
#[derive(Debug)]
struct PolicyMetrics {
    label: Label,
    requests: [Counter; 5],
    settled: OnceLock<[Counter; 2]>,
    dry_run: OnceLock<[Counter; 4]>,
    held: OnceLock<HeldUnits>,
}

/// The units that are held now, and the most so far.
#[derive(Debug)]
struct HeldUnits {
    held: AtomicU64,
    most: AtomicU64,
    held_gauge: Gauge,
    most_gauge: Gauge,
    outlasted: Counter,
}

/// Stands for the held units of a policy that has given its label back. A thread that still has its
/// metrics must not add to them, because the end of the call would not find them.
const ENDED: u64 = u64::MAX;

// Relaxed: counts are for reports and order nothing.
impl HeldUnits {
    /// Returns those of a policy that has ended, and never held any.
    fn ended() -> Self {
        Self {
            held: AtomicU64::new(ENDED),
            most: AtomicU64::new(0),
            held_gauge: Gauge::noop(),
            most_gauge: Gauge::noop(),
            outlasted: Counter::noop(),
        }
    }

    /// Adds units; `false` if the policy has ended.
    fn add(&self, units: u64) -> bool {
        let more = |held: u64| (held != ENDED).then(|| held.saturating_add(units).min(ENDED - 1));
        let former = self
            .held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let Ok(held) = former else { return false };
        let held = held.saturating_add(units);
        self.held_gauge.increment(units as f64);
        let most = self.most.fetch_max(held, Ordering::Relaxed);
        // Added, not set: threads add in any order.
        self.most_gauge.increment(held.saturating_sub(most) as f64);
        true
    }

    /// Begins anew; `false` if units are held.
    fn end(&self) -> bool {
        let ended = self
            .held
            .compare_exchange(0, ENDED, Ordering::Relaxed, Ordering::Relaxed);
        let ends = matches!(ended, Ok(_) | Err(ENDED));
        if ends {
            self.most_gauge.set(0.0);
        }
        ends
    }

    /// Subtracts units, as far as they are held here. Returns the rest.
    fn subtract(&self, units: u64) -> u64 {
        let less = |held: u64| (held != ENDED).then(|| held.saturating_sub(units));
        let former = self
            .held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let here = former.map_or(0, |held| held.min(units));
        self.held_gauge.decrement(here as f64);
        units - here
    }
}

impl PolicyMetrics {
    /// Registers the metrics of the policy of this name.
    fn new(policy: &str) -> Self {
        let label = Label::new("policy", policy.to_owned());
        let outcomes = [
            "admitted",
            "delayed",
            "refused",
            "undecided_admitted",
            "undecided_refused",
        ];
        Self {
            requests: counters(REQUESTS, &label, "outcome", outcomes),
            settled: OnceLock::new(),
            dry_run: OnceLock::new(),
            held: OnceLock::new(),
            label,
        }
    }

    #[inline]
    fn admitted(&self) {
        let [admitted, ..] = &self.requests;
        admitted.increment(1);
    }

    fn delayed(&self, wait: Duration) {
        let [_, delayed, ..] = &self.requests;
        delayed.increment(1);
        // Registered each time: it cannot be kept in use without a value.
        DELAY.histogram(vec![self.label.clone()]).record(wait);
    }

    #[inline]
    fn refused(&self) {
        let [_, _, refused, ..] = &self.requests;
        refused.increment(1);
    }

    fn undecided(&self, decision: &Decision) {
        let [.., admitted, refused] = &self.requests;
        let counter = if decision.is_admitted() {
            admitted
        } else {
            refused
        };
        counter.increment(1);
    }

    fn settled(&self, charged: u64, actual: u64) {
        let directions = ["returned", "added"];
        let [returned, added] = self
            .settled
            .get_or_init(|| counters(SETTLED_UNITS, &self.label, "direction", directions));
        returned.increment(charged.saturating_sub(actual));
        added.increment(actual.saturating_sub(charged));
    }

    /// Prepares for the end of the limit; `false` if it is still in use.
    fn end(&self) -> bool {
        self.held.get_or_init(HeldUnits::ended).end()
    }

    fn refresh(&self) {
        touch(&self.requests);
        touch(self.settled.get().into_iter().flatten());
        touch(self.dry_run.get().into_iter().flatten());
        if let Some(held) = self.held.get() {
            held.held_gauge.increment(0.0);
            held.most_gauge.increment(0.0);
            touch([&held.outlasted]);
        }
    }

    fn held(&self) -> &HeldUnits {
        self.held.get_or_init(|| HeldUnits {
            held: AtomicU64::new(0),
            most: AtomicU64::new(0),
            held_gauge: HELD_UNITS.gauge(vec![self.label.clone()]),
            most_gauge: MOST_HELD_UNITS.gauge(vec![self.label.clone()]),
            outlasted: OUTLASTED_UNITS.counter(vec![self.label.clone()]),
        })
    }

    fn dry_run(&self, decision: &Decision) {
        let verdicts = ["admitted", "delayed", "refused", "undecided"];
        let [admitted, delayed, refused, undecided] = self
            .dry_run
            .get_or_init(|| counters(DRY_RUN, &self.label, "verdict", verdicts));
        let counter = match decision.verdict() {
            Verdict::Allow | Verdict::DryRun { admitted: true } => admitted,
            Verdict::Delay(_) => delayed,
            Verdict::Refuse | Verdict::DryRun { admitted: false } => refused,
            Verdict::Undecided { .. } => undecided,
        };
        counter.increment(1);
    }
}
