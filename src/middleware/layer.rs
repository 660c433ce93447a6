//! The layer: it adds limits to a service.

use std::sync::Arc;

use tower_layer::Layer;

use super::{
    config::{BoxObserver, Config, Counts},
    limit::Limit,
    limits::{Limits, check_fit, check_names},
    per_request::By,
    same_state::Registration,
    service::RateLimit,
};
use crate::{
    dry_run::{DryRun, DryRunReport},
    error::{Error, or_panic},
    limiter::Limiter,
    live_rule::{OwnRule, Watch},
    observe::Observer,
    policy::Policy,
    store::{Backend, NeverFails, Store},
};

/// Limits the rate of requests to any tower service.
///
/// | to limit | use |
/// |---|---|
/// | requests of clients, which are refused | a layer |
/// | anything else that has a key and a cost: frames, jobs, messages | a [`Limiter`](crate::Limiter) |
/// | the work of one program, which waits | a [`Pacer`](crate::pace::Pacer) |
///
/// [`new`](Self::new) begins with the defaults: state in memory, one key for all requests, a cost
/// of 1, answers over HTTP and gRPC. Clones of the layer, and all services that it makes, share one
/// budget.
///
/// | parameter | | set by |
/// |---|---|---|
/// | `L` | the limits: one [`Limit`], pairs of them, or a list | [`new`](Self::new), [`from`](Self::from), [`also`](Self::also), [`list`](Self::list) |
/// | `S` | the store of their states | [`store`](Self::store) |
/// | `R` | the answers to refused requests | [`respond`](Self::respond) |
///
/// A field of a struct names them, as in [`By`](crate::By), or is a [`BoxLayer`](crate::BoxLayer).
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response, StatusCode};
/// use tollgate::{RateLimitLayer, TokenBucket};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
/// let mut service = ServiceBuilder::new()
///     .layer(RateLimitLayer::new(TokenBucket::per_minute(1)))
///     .service(service_fn(async |_: Request<()>| {
///         Ok::<_, Infallible>(Response::new(String::from("hello")))
///     }));
///
/// let first = service.ready().await?.call(Request::new(())).await?;
/// assert_eq!(first.body(), "hello");
/// let second = service.ready().await?.call(Request::new(())).await?;
/// assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(second.headers()["retry-after"], "60");
/// # Ok(()) }
/// ```
///
/// # The tower contract
///
/// `call` decides, on the instance that `poll_ready` made ready. An admitted request goes to that
/// instance. On refusal the ready instance is dropped unused and replaced by a clone. A delayed
/// request holds none of the inner service's capacity: after the delay it waits for a fresh clone
/// to be ready.
///
/// # Cancellation
///
/// A request that is dropped while the store is being asked is charged at most once. A request that
/// is dropped while it is delayed is [counted](Self::cancelled), and its charge is refunded in
/// the background. If that fails, the charge is [counted](Self::unsettled) as unsettled.
#[doc(alias(
    "rate limit",
    "rate limiter",
    "ratelimit",
    "throttle",
    "governor",
    "GovernorLayer",
    "quota"
))]
#[derive(Clone)]
#[must_use = "a layer does nothing until it is added to a service"]
pub struct RateLimitLayer<L, S, R> {
    // Before the store, see `Registration`.
    pub(super) registration: Arc<Registration>,
    pub(super) limits: L,
    pub(super) store: S,
    /// Check later rules for the store.
    pub(super) watches: Vec<Watch>,
    pub(super) respond: R,
    pub(super) observer: Option<BoxObserver>,
    pub(super) counts: Arc<Counts>,
}

/// Returns a layer with other parts, whose types `..` cannot change.
macro_rules! with_parts {
    ($layer:ident, $limits:expr, $store:expr, $respond:expr) => {
        RateLimitLayer {
            registration: $layer.registration,
            limits: $limits,
            store: $store,
            watches: $layer.watches,
            respond: $respond,
            observer: $layer.observer,
            counts: $layer.counts,
        }
    };
}

impl<L, S, R> RateLimitLayer<L, S, R> {
    /// Takes the limits out, to be put back by `with_limits`.
    pub(super) fn take_limits(self) -> (L, RateLimitLayer<(), S, R>) {
        let mut layer = with_parts!(self, (), self.store, self.respond);
        layer.registration = Arc::default();
        (self.limits, layer)
    }

    pub(super) fn with_limits<M>(self, limits: M) -> RateLimitLayer<M, S, R> {
        with_parts!(self, limits, self.store, self.respond)
    }

    /// Keeps the state in another store.
    ///
    /// The store must run the rule's type, be cheap to clone (an [`Arc`] of a store is), and be
    /// shared between threads. For a
    /// store that can fail, first choose what happens then, by
    /// [`fail_open`](crate::store::StoreExt::fail_open) or
    /// [`fail_closed`](crate::store::StoreExt::fail_closed).
    ///
    /// # Panics
    ///
    /// When the rule of a limit does not [fit](Store::fits) the store; see
    /// [`try_store`](Self::try_store). Rules that are [selected per request](Self::rule) are
    /// checked when they are used, and those of a [`LiveRule`](crate::LiveRule) when they are set.
    #[track_caller]
    // The bound stands here rather than on `Layer` alone, so that the compiler's message about it
    // points at this call.
    pub fn store<T>(self, store: T) -> RateLimitLayer<L, T, R>
    where
        T: Backend<Error: NeverFails> + Store<L::Rule> + Clone + Send + Sync + 'static,
        L: Limits,
    {
        or_panic(self.try_store(store))
    }

    /// Keeps the state in another store, for rules from configuration.
    ///
    /// ```
    /// use tollgate::{AnyRule, RateLimitLayer, prelude::*, store::{BoxStore, StoreError}};
    ///
    /// # fn layer(rule: AnyRule, remote: BoxStore<AnyRule, StoreError>) -> Result<(), tollgate::Error> {
    /// // An error, for example, if a token bucket has a larger burst than a script of Redis can
    /// // count.
    /// let layer = RateLimitLayer::try_new(rule)?.try_store(remote.fail_closed())?;
    /// # let _ = layer; Ok(())
    /// # }
    /// # let _: fn(_, _) -> _ = layer;
    /// ```
    ///
    /// # Errors
    ///
    /// When the rule of a limit does not [fit](Store::fits) the store.
    pub fn try_store<T>(self, store: T) -> Result<RateLimitLayer<L, T, R>, Error>
    where
        T: Backend<Error: NeverFails> + Store<L::Rule> + Clone + Send + Sync + 'static,
        L: Limits,
    {
        let watches = check_fit(&self.limits, &store)?;
        let mut layer = with_parts!(self, self.limits, store, self.respond);
        (layer.registration, layer.watches) = (Arc::default(), watches);
        Ok(layer)
    }

    /// Changes how refusals are answered and admitted responses are marked.
    ///
    /// See [`respond`](crate::respond) for the responders of this crate. Your own implements
    /// [`Respond`](crate::respond::Respond):
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use tollgate::{Outcome, RateLimitLayer, TokenBucket, respond::{Refusal, Respond}};
    /// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
    ///
    /// /// A line of a chat, and the reply to it.
    /// type Line = String;
    ///
    /// /// Adds the remaining lines to each reply, and replies to refused lines itself.
    /// #[derive(Clone)]
    /// struct Chat;
    ///
    /// impl Respond<Line, Line, Infallible> for Chat {
    ///     /// Kept from the request for its reply.
    ///     type Annotation = Option<u64>;
    ///
    ///     fn wants_outcome(&self) -> bool {
    ///         true
    ///     }
    ///     fn admit(&self, _: &mut Line, outcome: Outcome) -> Option<u64> {
    ///         outcome.nearest().and_then(|(_, decision)| decision.remaining())
    ///     }
    ///     fn annotate(remaining: Option<u64>, reply: &mut Line) {
    ///         if let Some(remaining) = remaining {
    ///             reply.push_str(&format!(" ({remaining} left)"));
    ///         }
    ///     }
    ///     fn refuse(&self, _: Line, refusal: Refusal) -> Result<Line, Infallible> {
    ///         Ok(match refusal.retry_after() {
    ///             Some(wait) => format!("slow down for {} s", wait.as_secs_f64().ceil()),
    ///             None => "not now".to_owned(),
    ///         })
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// let mut chat = ServiceBuilder::new()
    ///     .layer(RateLimitLayer::new(TokenBucket::per_minute(1)).respond(Chat))
    ///     .service(service_fn(async |line: Line| Ok::<_, Infallible>(format!("you said {line}"))));
    ///
    /// assert_eq!(chat.ready().await?.call("hello".into()).await?, "you said hello (0 left)");
    /// assert_eq!(chat.ready().await?.call("hello".into()).await?, "slow down for 60 s");
    /// # Ok(()) }
    /// ```
    #[doc(alias("error handler", "429"))]
    pub fn respond<T>(self, respond: T) -> RateLimitLayer<L, S, T> {
        with_parts!(self, self.limits, self.store, respond)
    }

    /// Reports what the layer does to one more [`Observer`]: counters, metrics, logs.
    ///
    /// All clones and services of the layer share it, on all threads.
    ///
    /// ```
    /// use std::{convert::Infallible, sync::{Arc, atomic::{AtomicU64, Ordering}}};
    /// use http::{Request, Response};
    /// use tollgate::{RateLimitLayer, TokenBucket, observe::{Event, Observer}};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// #[derive(Default)]
    /// struct Refusals(AtomicU64);
    ///
    /// impl Observer for Refusals {
    ///     fn refused(&self, _: &Event<'_>) {
    ///         self.0.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// let refusals = Arc::new(Refusals::default());
    /// let service = ServiceBuilder::new()
    ///     .layer(RateLimitLayer::new(TokenBucket::per_minute(1)).observe(Arc::clone(&refusals)))
    ///     .service(service_fn(async |_: Request<()>| {
    ///         Ok::<_, Infallible>(Response::new(String::new()))
    ///     }));
    ///
    /// for _ in 0..3 {
    ///     service.clone().oneshot(Request::new(())).await?;
    /// }
    /// assert_eq!(refusals.0.load(Ordering::Relaxed), 2);
    /// # Ok(()) }
    /// ```
    #[doc(alias = "metrics")]
    pub fn observe(mut self, observer: impl Observer + Send + Sync + 'static) -> Self {
        self.observer = Some(match self.observer.take() {
            Some(others) => Arc::new((others, observer)),
            None => Arc::new(observer),
        });
        self
    }

    /// Adds a limit. A request passes if all limits admit it, and is charged to all of them or to
    /// none.
    ///
    /// The limits of one layer have rules of one type. For rules of several types, make each an
    /// [`AnyRule`](crate::AnyRule), by `AnyRule::from(rule)` or from text.
    ///
    /// ```
    /// use tollgate::{Limit, RateLimitLayer, TokenBucket, key::PeerIp};
    ///
    /// let layer = RateLimitLayer::new(TokenBucket::per_second(10))
    ///     .key(PeerIp::new())
    ///     .also(Limit::new(TokenBucket::per_second(1_000)).named("total"));
    /// # let _ = layer;
    /// ```
    ///
    /// # Panics
    ///
    /// When another limit of the layer has the same name, the rule does not [fit](Store::fits) the
    /// layer's store, or the layer lacks the limit that this one is [compared
    /// with](crate::Limit::compared_with); see [`try_also`](Self::try_also).
    #[track_caller]
    pub fn also<B, T>(
        self,
        limit: Limit<L::Rule, B, T>,
    ) -> RateLimitLayer<(L, Limit<L::Rule, B, T>), S, R>
    where
        L: Limits,
        S: Store<L::Rule> + Clone + Send + Sync + 'static,
    {
        or_panic(self.try_also(limit))
    }

    /// Adds a limit from configuration, as [`also`](Self::also) does.
    ///
    /// # Errors
    ///
    /// When another limit of the layer has the same name, the rule does not [fit](Store::fits) the
    /// layer's store, or the layer lacks the limit that this one is [compared
    /// with](crate::Limit::compared_with).
    pub fn try_also<B, T>(
        self,
        limit: Limit<L::Rule, B, T>,
    ) -> Result<RateLimitLayer<(L, Limit<L::Rule, B, T>), S, R>, Error>
    where
        L: Limits,
        S: Store<L::Rule> + Clone + Send + Sync + 'static,
    {
        let watches = check_fit(&limit, &self.store)?;
        let (limits, layer) = self.take_limits();
        let mut layer = layer.with_limits((limits, limit));
        layer.watches.extend(watches);
        check_names(&layer.limits)?;
        Ok(layer)
    }

    /// Returns the number of requests that were dropped before their turn: delayed ones, whose
    /// charges were refunded, and those that [waited](crate::InFlight#waiting).
    pub fn cancelled(&self) -> u64 {
        self.counts.cancelled.get()
    }

    /// Returns the number of requests that were refused or decided twice because the server is set
    /// up wrongly, over all clones and services.
    ///
    /// Anything but 0 is a mistake on the server, which the feature `tracing` logs with the remedy:
    ///
    /// - [the server lacks](crate::key::MissingKey::is_server_fault) what a key is made of,
    ///   whatever the status of the answer: a peer's address, or an
    ///   [`Extension`](crate::key::Extension) that no [combinator](crate::key::KeyExtractorExt)
    ///   allows to be absent,
    /// - the store [does not support](crate::store::StoreError::unsupported) a rule or a state,
    /// - a rule delayed a request, and no runtime of tokio could hold it,
    /// - a layer outside of this one has decided the request by the same limit on the same
    ///   [store](crate::store::Backend::id), so the request is charged twice, or refused because
    ///   the first charge left too little. A layer that is applied to a router and to a route, or
    ///   to a nested router, is the usual reason. Noticed where requests carry their
    ///   [outcome](crate::respond::Http::outcome).
    ///
    /// A handler that sends requests of its own through the same limit must not copy the
    /// [`Outcome`](crate::Outcome) of the request that it serves into their extensions, or each of
    /// them is counted here: `extensions.remove::<Outcome>()`.
    ///
    /// A request without a key for a [dry run](Self::dry_run) is not refused, and not counted here
    /// but in [`DryRunReport::missing_key`](crate::DryRunReport::missing_key).
    pub fn misconfigured(&self) -> u64 {
        self.counts.misconfigured.get()
    }

    /// Returns the number of limits that share the states of this layer's limit by mistake now:
    /// both were given no name, have different rules of one
    /// [kind](crate::algorithm::Algorithm::state_kind), and decide requests on one
    /// [store](crate::store::Backend::id). Each request of one is also charged to the other, so a
    /// login limit that is spent refuses the whole API.
    ///
    /// Clones of a layer and all services that they make are one limit. It counts from its first
    /// request until the last of them is dropped. So an old layer whose place another one has taken
    /// is counted while its services are in use. The feature `tracing` logs both rules once. To
    /// separate limits, [name](Self::named) each.
    ///
    /// Limits with a rule [for each request](Self::rule), and those by a
    /// [`LiveRule`](crate::LiveRule), are not compared. A clone with another
    /// limit or store than this layer has is a limit of its own, with its own number.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tollgate::prelude::*;
    /// use tower::{Layer, Service, service_fn};
    ///
    /// let store = Local::new();
    /// let login = RateLimitLayer::new(TokenBucket::per_hour(3)).store(store.clone());
    /// let api = RateLimitLayer::new(TokenBucket::per_hour(100)).store(store);
    /// for layer in [&login, &api] {
    ///     let service = service_fn(async |_: Request<()>| {
    ///         Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    ///     });
    ///     drop(layer.layer(service).call(Request::new(())));
    /// }
    /// assert_eq!((login.collisions(), api.collisions()), (1, 1));
    /// drop(login);
    /// assert_eq!(api.collisions(), 0);
    /// ```
    pub fn collisions(&self) -> u64 {
        self.registration.collisions()
    }

    /// Returns a handle on the limit of this name, for checks without requests on the same budget:
    /// WebSocket messages, jobs, an admin console.
    ///
    /// It decides by the limit's own rule. Keys must be those that the limit's extractor makes; see
    /// [`Limiter`].
    ///
    /// ```
    /// use tollgate::{Cost, RateLimitLayer, TokenBucket, key::{Header, Key}};
    ///
    /// let layer = RateLimitLayer::new(TokenBucket::per_second(2))
    ///     .named("api")
    ///     .key(Header::new("x-api-key"));
    /// let limiter = layer.limiter("api")?;
    /// // A message of a connection that was opened with this key.
    /// assert!(limiter.check(Key::bytes(b"alice"), Cost::ONE).at_once().is_admitted());
    ///
    /// let error = layer.limiter("web").unwrap_err();
    /// assert!(error.to_string().contains("expected one of `api`"));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the layer has no limit of this name.
    pub fn limiter(&self, policy: &str) -> Result<Limiter<L::Rule, S>, Error>
    where
        L: Limits<Rule: Clone>,
        S: Store<L::Rule> + Clone + Send + Sync + 'static,
    {
        let mut list = Vec::new();
        self.limits.list(&mut list);
        let found = list.iter().find(|limit| limit.policy.name() == policy);
        let Some(limit) = found else {
            let names: Vec<_> = list
                .iter()
                .map(|limit| format!("`{}`", limit.policy))
                .collect();
            return Err(Error::new(format!(
                "the layer has no limit named `{policy}`: expected one of {}; use the name that the limit was given by `named`",
                names.join(", ")
            )));
        };
        let (policy, store) = (limit.policy.clone(), self.store.clone());
        match &limit.rule {
            OwnRule::Fixed(rule) => Limiter::try_new(policy, rule.clone(), store),
            OwnRule::Live { rule, .. } => Limiter::try_live(policy, rule, store),
        }
    }

    /// Returns the counts of the [dry run](crate::Limit::dry_run) of the limit of this name; `None`
    /// if no such limit is on a dry run.
    ///
    /// All clones and services of the layer count together.
    pub fn dry_run_report(&self, policy: &str) -> Option<DryRunReport>
    where
        L: Limits,
    {
        let mut list = Vec::new();
        self.limits.list(&mut list);
        let limit = list
            .into_iter()
            .find(|limit| limit.policy.name() == policy)?;
        limit.dry_run.as_ref().map(DryRun::report)
    }

    /// Returns the number of charges that may not have been corrected because a settlement failed.
    ///
    /// Counts the settlements of requests that were dropped while they were delayed, and all
    /// settlements that handlers made through the layer's store. The store
    /// [counts](Backend::unsettled) for all layers and clones that share it.
    ///
    /// ```
    /// use tollgate::{TokenBucket, prelude::*};
    ///
    /// let store = Local::<TokenBucket>::new().fail_open();
    /// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).store(store);
    /// assert_eq!(layer.unsettled(), 0);
    /// ```
    pub fn unsettled(&self) -> u64
    where
        S: Backend,
    {
        self.store.unsettled().unwrap_or(0)
    }
}

impl<Rule: 'static, K, C, P, T, S, R> RateLimitLayer<Limit<Rule, By<K, C, P>, T>, S, R> {
    /// Adds a candidate for the limit's rule, on a [dry run](Limit::dry_run): a limit named `name`
    /// with the same key and cost, whose decisions are [compared](Limit::compared_with) with those
    /// of this one.
    ///
    /// Each rule sees all requests, as if it were alone. Call it after [`key`](Self::key),
    /// [`cost`](Self::cost) and [`named`](Self::named), and make both rules an
    /// [`AnyRule`](crate::AnyRule) to compare algorithms. For further candidates, give
    /// [`also`](Self::also) limits that are [compared](Limit::compared_with) with this one.
    ///
    /// The candidate has one rule for all requests, even if this limit [selects](Self::rule) rules.
    /// It refunds by the condition of `charge_if` or `charge_after`, and a handler that settles
    /// the [handle](Limit::charge_handle) of this one settles it, too.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use http::{Request, Response};
    /// use tollgate::{RateLimitLayer, TokenBucket};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// let layer = RateLimitLayer::new(TokenBucket::per_minute(2))
    ///     .named("api")
    ///     .candidate("api-next", TokenBucket::per_minute(5));
    /// let service = ServiceBuilder::new()
    ///     .layer(layer.clone())
    ///     .service(service_fn(async |_: Request<()>| {
    ///         Ok::<_, Infallible>(Response::new(String::new()))
    ///     }));
    ///
    /// for _ in 0..7 {
    ///     service.clone().oneshot(Request::new(())).await?;
    /// }
    /// let report = layer.dry_run_report("api-next").unwrap();
    /// // `api` refused five of the requests, and `api-next` would have admitted three of these.
    /// assert_eq!((report.admitted, report.refused), (5, 2));
    /// assert_eq!((report.admitted_alone, report.refused_alone), (3, 0));
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// When the name is no [`Policy`] or the limit's own, or the rule does not [fit](Store::fits)
    /// the layer's store; see [`try_candidate`](Self::try_candidate).
    #[track_caller]
    pub fn candidate(self, name: &str, rule: Rule) -> WithCandidate<Rule, K, C, P, T, S, R>
    where
        K: Clone,
        C: Clone,
        T: Clone,
        S: Store<Rule> + Clone + Send + Sync + 'static,
    {
        or_panic(self.try_candidate(name, rule))
    }

    /// Adds a candidate from configuration, as [`candidate`](Self::candidate) does.
    ///
    /// # Errors
    ///
    /// When the name is no [`Policy`] or the limit's own, or the rule does not [fit](Store::fits)
    /// the layer's store.
    pub fn try_candidate(
        self,
        name: &str,
        rule: Rule,
    ) -> Result<WithCandidate<Rule, K, C, P, T, S, R>, Error>
    where
        K: Clone,
        C: Clone,
        T: Clone,
        S: Store<Rule> + Clone + Send + Sync + 'static,
    {
        let candidate = self.limits.candidate(Policy::try_new(name)?, rule);
        self.try_also(candidate)
    }
}

/// A layer with a limit, and another one with a candidate for its rule.
type WithCandidate<Rule, K, C, P, T, S, R> =
    RateLimitLayer<(Limit<Rule, By<K, C, P>, T>, Limit<Rule, By<K, C>, T>), S, R>;

impl<Svc, L, S, R> Layer<Svc> for RateLimitLayer<L, S, R>
where
    L: Limits + Clone,
    S: Backend<Error: NeverFails> + Clone,
    R: Clone,
{
    type Service = RateLimit<Svc, L, S, R>;

    fn layer(&self, inner: Svc) -> Self::Service {
        RateLimit::new(inner, Arc::new(Config::new(self.clone())))
    }
}

impl_debug!([L: std::fmt::Debug, S: std::fmt::Debug, R] RateLimitLayer<L, S, R>, |it|
    limits = it.limits, store = it.store
);
