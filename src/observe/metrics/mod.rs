//! Metrics through the facade `metrics`: an observer of layers, and the counters of stores and
//! layers.
//!
//! The metrics of a policy are found by its digest, in a table that is only added to. The facade's
//! macros would hash a name and its labels for each event, and allocate them. The number of
//! policies is bounded, because a recorder never forgets a label.

mod families;
mod publish;

pub use self::publish::Publish;

use std::{
    fmt, iter,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use metrics::{Counter, Gauge, Histogram, Label};

use self::families::{
    DELAY, DRY_RUN, EXEMPT, HELD_UNITS, MISSING_KEYS, MOST_HELD_UNITS, OUTLASTED_UNITS, REQUESTS,
    SETTLED_UNITS,
};
use super::{Event, Observer};
use crate::{
    decision::{Decision, Verdict},
    key::{Key, MissingKey},
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
/// # Histograms
///
/// Choose the buckets of `tollgate_delay_seconds` in your exporter: the longest delay is the
/// longest queue that a rule allows.
///
/// # Cost
///
/// An event looks its policy up by a number, without a lock and without allocation, and adds to a
/// counter of the recorder.
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

    /// Registers the units and descriptions of [all metrics](crate::operations#all-metrics). Call
    /// it once the recorder is installed.
    pub fn describe() {
        families::describe_all();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Observer for Metrics {
    #[inline]
    fn admitted(&self, event: &Event<'_>) {
        self.registered.policies.get(event.policy()).admitted();
    }

    fn delayed(&self, event: &Event<'_>, wait: Duration) {
        self.registered.policies.get(event.policy()).delayed(wait);
    }

    #[inline]
    fn refused(&self, event: &Event<'_>) {
        self.registered.policies.get(event.policy()).refused();
    }

    fn undecided(&self, event: &Event<'_>) {
        let metrics = self.registered.policies.get(event.policy());
        metrics.undecided(event.decision());
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
        self.registered
            .policies
            .get(policy)
            .settled(charged, actual);
    }

    fn dry_run(&self, event: &Event<'_>) {
        let metrics = self.registered.policies.get(event.policy());
        metrics.dry_run(event.decision());
    }

    fn held(&self, policy: &Policy, _: &Key, units: u64) {
        self.registered.policies.get(policy).held().add(units);
    }

    fn outlasted(&self, policy: &Policy, _: &Key, units: u64) {
        let held = self.registered.policies.get(policy).held();
        held.outlasted.increment(units);
    }

    fn released(&self, policy: &Policy, _: &Key, units: u64) {
        self.registered.policies.get(policy).held().subtract(units);
    }
}

/// A table of the metrics of a bounded number of policies. Policies are only added.
#[derive(Debug)]
struct PolicyTable {
    /// A power of two, more than the maximum number of policies. Linear probing starts at the
    /// digest of a policy.
    slots: Box<[OnceLock<RegisteredPolicy>]>,
    /// The number of policies that may still be added.
    room: Mutex<usize>,
    is_full: AtomicBool,
    /// The metrics of all further policies.
    other: OnceLock<PolicyMetrics>,
}

/// A policy, identified by its digest as in stores.
#[derive(Debug)]
struct RegisteredPolicy {
    digest: u64,
    metrics: PolicyMetrics,
}

impl PolicyTable {
    /// Creates a table for `most` policies.
    fn new(most: usize) -> Self {
        let slots = most.saturating_mul(2).saturating_add(1);
        let slots = slots.checked_next_power_of_two().unwrap_or(slots);
        Self {
            slots: iter::repeat_with(OnceLock::new).take(slots).collect(),
            room: Mutex::new(most),
            is_full: AtomicBool::new(most == 0),
            other: OnceLock::new(),
        }
    }

    /// Returns the metrics of a policy, or those of all further policies if it is one too many.
    #[inline]
    fn get(&self, policy: &Policy) -> &PolicyMetrics {
        let digest = policy.name_digest();
        for slot in self.probe(digest) {
            match slot.get() {
                Some(entry) if entry.digest == digest => return &entry.metrics,
                Some(_) => {}
                None => break,
            }
        }
        self.add(policy)
    }

    /// Returns all slots, beginning with that of a digest.
    #[inline]
    fn probe(&self, digest: u64) -> impl Iterator<Item = &OnceLock<RegisteredPolicy>> {
        let (before, from) = self
            .slots
            .split_at(digest as usize & (self.slots.len() - 1));
        from.iter().chain(before)
    }

    #[cold]
    fn add(&self, policy: &Policy) -> &PolicyMetrics {
        // Relaxed: at worst, the lock is taken once more.
        if self.is_full.load(Ordering::Relaxed) {
            return self.other();
        }
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = policy.name_digest();
        for slot in self.probe(digest) {
            match slot.get() {
                Some(entry) if entry.digest == digest => return &entry.metrics,
                Some(_) => continue,
                None if *room == 0 => break,
                None => {}
            }
            *room -= 1;
            if *room == 0 {
                self.is_full.store(true, Ordering::Relaxed);
            }
            let entry = || RegisteredPolicy {
                digest,
                metrics: PolicyMetrics::new(policy.name()),
            };
            return &slot.get_or_init(entry).metrics;
        }
        self.other()
    }

    fn other(&self) -> &PolicyMetrics {
        self.other.get_or_init(|| PolicyMetrics::new("other"))
    }
}

/// The registered metrics of one policy. Those of rare features are registered when first needed.
#[derive(Debug)]
struct PolicyMetrics {
    label: Label,
    admitted: Counter,
    delayed: Counter,
    refused: Counter,
    undecided_admitted: Counter,
    undecided_refused: Counter,
    delay: OnceLock<Histogram>,
    settled: OnceLock<SettledUnits>,
    dry_run: OnceLock<DryRunVerdicts>,
    held: OnceLock<HeldUnits>,
}

#[derive(Debug)]
struct SettledUnits {
    returned: Counter,
    added: Counter,
}

#[derive(Debug)]
struct DryRunVerdicts {
    admitted: Counter,
    delayed: Counter,
    refused: Counter,
    undecided: Counter,
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

impl HeldUnits {
    // Relaxed: counts are for reports and order nothing.
    fn add(&self, units: u64) {
        let held = self.held.fetch_add(units, Ordering::Relaxed);
        let held = held.saturating_add(units);
        self.held_gauge.increment(units as f64);
        let most = self.most.fetch_max(held, Ordering::Relaxed);
        // Added, not set: threads add in any order.
        self.most_gauge.increment(held.saturating_sub(most) as f64);
    }

    fn subtract(&self, units: u64) {
        let less = |held: u64| Some(held.saturating_sub(units));
        let _ = self
            .held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.held_gauge.decrement(units as f64);
    }
}

impl PolicyMetrics {
    /// Registers the metrics of the policy of this name.
    fn new(policy: &str) -> Self {
        let label = Label::new("policy", policy.to_owned());
        let outcome = |outcome| {
            let outcome = Label::from_static_parts("outcome", outcome);
            REQUESTS.counter(vec![label.clone(), outcome])
        };
        Self {
            admitted: outcome("admitted"),
            delayed: outcome("delayed"),
            refused: outcome("refused"),
            undecided_admitted: outcome("undecided_admitted"),
            undecided_refused: outcome("undecided_refused"),
            delay: OnceLock::new(),
            settled: OnceLock::new(),
            dry_run: OnceLock::new(),
            held: OnceLock::new(),
            label,
        }
    }

    #[inline]
    fn admitted(&self) {
        self.admitted.increment(1);
    }

    fn delayed(&self, wait: Duration) {
        self.delayed.increment(1);
        let delay = self
            .delay
            .get_or_init(|| DELAY.histogram(vec![self.label.clone()]));
        delay.record(wait);
    }

    #[inline]
    fn refused(&self) {
        self.refused.increment(1);
    }

    fn undecided(&self, decision: &Decision) {
        let counter = if decision.is_admitted() {
            &self.undecided_admitted
        } else {
            &self.undecided_refused
        };
        counter.increment(1);
    }

    fn settled(&self, charged: u64, actual: u64) {
        let settled = self.settled.get_or_init(|| {
            let direction = |direction| {
                let direction = Label::from_static_parts("direction", direction);
                SETTLED_UNITS.counter(vec![self.label.clone(), direction])
            };
            SettledUnits {
                returned: direction("returned"),
                added: direction("added"),
            }
        });
        settled.returned.increment(charged.saturating_sub(actual));
        settled.added.increment(actual.saturating_sub(charged));
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
        let dry_run = self.dry_run.get_or_init(|| {
            let verdict = |verdict| {
                let verdict = Label::from_static_parts("verdict", verdict);
                DRY_RUN.counter(vec![self.label.clone(), verdict])
            };
            DryRunVerdicts {
                admitted: verdict("admitted"),
                delayed: verdict("delayed"),
                refused: verdict("refused"),
                undecided: verdict("undecided"),
            }
        });
        let counter = match decision.verdict() {
            Verdict::Allow | Verdict::DryRun { admitted: true } => &dry_run.admitted,
            Verdict::Delay(_) => &dry_run.delayed,
            Verdict::Refuse | Verdict::DryRun { admitted: false } => &dry_run.refused,
            Verdict::Undecided { .. } => &dry_run.undecided,
        };
        counter.increment(1);
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn policies_beyond_the_maximum_share_one_entry() {
        for most in [0, 1, 2, 5, 64] {
            let policies = PolicyTable::new(most);
            let names: Vec<_> = (0..200)
                .map(|number| Policy::new(&number.to_string()))
                .collect();
            // Twice: what was found once is found again.
            for _ in 0..2 {
                let entries: Vec<_> = names.iter().map(|name| policies.get(name)).collect();
                for (at, entry) in entries.iter().enumerate() {
                    for (before, other) in entries[..at].iter().enumerate() {
                        let shared = at >= most && before >= most;
                        assert_eq!(
                            ptr::eq(*entry, *other),
                            shared,
                            "{before} and {at} of {most}"
                        );
                    }
                }
            }
        }
    }
}
