//! An observer that reports through the facade `metrics`.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use metrics::{Counter, Label};

use super::{
    families::{ALL, EXEMPT, MISSING_KEYS, table},
    policies::Policies,
};
use crate::{
    key::{Key, MissingKey},
    observe::{Event, Observer},
    policy::Policy,
};

/// Reports the events of a layer through the facade [`metrics`], for Prometheus and others.
///
/// Install the recorder of your exporter first: metrics are registered at the first event of a policy, and those that are registered
/// before there is a recorder are lost. Clones share what they have registered. Several layers may report to one `Metrics`, or to one each.
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
///     .layer(RateLimitLayer::new(TokenBucket::per_minute(2)).named("api").observe(Metrics::new()))
///     .service(service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new()))));
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
/// The first six are reported by this observer. The others are set by [`Publish`](crate::observe::Publish).
///
#[doc = table!()]
///
/// A limit's decision is one request, so a layer with two limits counts an admitted request for two policies.
///
/// # Labels
///
/// Keys are no labels, and no label has a value from a request. A policy is a label, because the program names its policies. For programs that
/// name them from data, only the [first 64](Self::with_capacity) policies have a label of their own; all others have the label `other`.
/// The labels `store` and `layer` are the names that `Publish` is given.
///
/// # Histograms
///
/// Choose the buckets of `tollgate_delay_seconds` in your exporter: the longest delay is the longest queue that a rule allows.
///
/// # Cost
///
/// An event looks its policy up by a number, without a lock and without allocation, and adds to a counter of the recorder.
#[derive(Clone)]
#[must_use = "metrics count nothing until a layer reports to them"]
pub struct Metrics {
    registered: Arc<Registered>,
}

/// The metrics that all clones have registered.
struct Registered {
    policies: Policies,
    exempt: OnceLock<Counter>,
    missing_by_client: OnceLock<Counter>,
    missing_by_server: OnceLock<Counter>,
}

impl Metrics {
    /// Creates an observer with labels for 64 policies.
    pub fn new() -> Self {
        Self::with_capacity(64)
    }

    /// Creates an observer with labels for so many policies; further ones have the label `other`.
    ///
    /// ```
    /// use tollgate::{RateLimitLayer, TokenBucket, observe::Metrics};
    ///
    /// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).observe(Metrics::with_capacity(500));
    /// # let _ = layer;
    /// ```
    pub fn with_capacity(policies: usize) -> Self {
        Self {
            registered: Arc::new(Registered {
                policies: Policies::new(policies),
                exempt: OnceLock::new(),
                missing_by_client: OnceLock::new(),
                missing_by_server: OnceLock::new(),
            }),
        }
    }

    /// Tells the recorder the units and descriptions of [all metrics](#metrics), once it is installed.
    pub fn describe() {
        for family in ALL {
            family.describe();
        }
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
}
