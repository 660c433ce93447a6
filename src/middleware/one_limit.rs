//! The settings of a layer that has one limit.

use std::sync::Arc;

use super::{layer::RateLimitLayer, limit::Limit, per_request::FixedRule};
use crate::{
    charging::{AddCondition, Charging, ForCandidate, HandOver, LookFirst},
    dry_run::{DryRun, Enforcement},
    error::Error,
    policy::Policy,
    store::Store,
};

/// Settings of the layer's one limit. Call them before [`also`](RateLimitLayer::also), and set
/// further limits up by themselves.
impl<Rule, P, K, C, E, B, S, R, O> RateLimitLayer<Limit<Rule, P, K, C, E, B>, S, R, O> {
    /// Counts by `key`: each key has the whole quota. Unless set, all requests share one.
    ///
    /// See [`key`](crate::key) for the extractors of this crate. An extractor of your own is a
    /// closure, or a type that implements [`KeyExtractor`](crate::key::KeyExtractor):
    ///
    /// ```
    /// use std::collections::HashSet;
    /// use http::{Request, StatusCode};
    /// use tollgate::{RateLimitLayer, TokenBucket, key::{Extracted, Key, KeyExtractor, MissingKey}};
    ///
    /// /// Limits each tenant, exempts the health check, and refuses banned tenants.
    /// #[derive(Clone)]
    /// struct Tenant {
    ///     banned: HashSet<String>,
    /// }
    ///
    /// impl<B> KeyExtractor<Request<B>> for Tenant {
    ///     fn extract(&self, request: &Request<B>) -> Result<Extracted, MissingKey> {
    ///         if request.uri().path() == "/health" {
    ///             return Ok(Extracted::Exempt);
    ///         }
    ///         let tenant = request.headers().get("x-tenant").and_then(|value| value.to_str().ok());
    ///         let tenant = tenant.ok_or(MissingKey::new("no header `x-tenant`"))?;
    ///         if self.banned.contains(tenant) {
    ///             return Err(MissingKey::new("the tenant is banned").with_status(StatusCode::FORBIDDEN));
    ///         }
    ///         Ok(Extracted::Key(Key::from(tenant)))
    ///     }
    /// }
    ///
    /// let tenant = Tenant { banned: HashSet::from(["mallory".to_owned()]) };
    /// let of = |name| tenant.extract(&Request::builder().header("x-tenant", name).body(()).unwrap());
    /// assert_eq!(of("alice"), Ok(Extracted::Key(Key::from("alice"))));
    /// assert_eq!(of("mallory").unwrap_err().status(), StatusCode::FORBIDDEN);
    /// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(tenant);
    /// # let _ = layer;
    /// ```
    #[doc(alias("per ip", "identifier", "ban"))]
    pub fn key<L>(self, key: L) -> RateLimitLayer<Limit<Rule, P, L, C, E, B>, S, R, O> {
        self.map_limits(|limit| limit.key(key))
    }

    /// Selects the rule for each request: a closure `Fn(&Req) -> Option<Rule>`, or any
    /// [`SelectRule`](crate::SelectRule). `None` is the layer's own rule.
    ///
    /// A rule that delays a request needs tokio to hold it, and each rule must [fit](Store::fits)
    /// the store; see [`Limit::rule`](crate::Limit::rule) for requests whose rule does not.
    pub fn rule<Q>(self, per_request: Q) -> RateLimitLayer<Limit<Rule, Q, K, C, E, B>, S, R, O> {
        self.map_limits(|limit| limit.rule(per_request))
    }

    /// Changes the cost of a request, 1 unless set: a [`Cost`](crate::Cost), a closure
    /// `Fn(&Req) -> Cost`, or any [`RequestCost`](crate::RequestCost).
    #[doc(alias = "weight")]
    pub fn cost<D>(self, cost: D) -> RateLimitLayer<Limit<Rule, P, K, D, E, B>, S, R, O> {
        self.map_limits(|limit| limit.cost(cost))
    }

    /// Puts a [`ChargeHandle`](crate::ChargeHandle) into the extensions of each request that is
    /// charged; see [`Limit::charge_handle`].
    pub fn charge_handle<Handed>(self) -> RateLimitLayer<Limit<Rule, P, K, C, E, Handed>, S, R, O>
    where
        B: HandOver<Handed>,
    {
        self.map_limits(Limit::charge_handle)
    }

    /// Charges only requests whose response fulfils a condition: reserve, then settle; see
    /// [`Limit::charge_if`].
    ///
    /// ```
    /// use http::Response;
    /// use tollgate::{RateLimitLayer, TokenBucket, key::PeerIp};
    ///
    /// // Answers from the cache are free.
    /// let layer = RateLimitLayer::new(TokenBucket::per_minute(100))
    ///     .key(PeerIp::new())
    ///     .charge_if(|response: &Response<String>| !response.headers().contains_key("x-cache-hit"));
    /// # let _ = layer;
    /// ```
    pub fn charge_if<F, Conditional>(
        self,
        condition: F,
    ) -> RateLimitLayer<Limit<Rule, P, K, C, E, Conditional>, S, R, O>
    where
        B: AddCondition<F, Conditional>,
    {
        self.map_limits(|limit| limit.charge_if(condition))
    }

    /// Puts the limit on a dry run: it decides, counts and reports, but refuses and delays nothing;
    /// see [`Limit::dry_run`].
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use http::{Request, Response};
    /// use tollgate::{RateLimitLayer, TokenBucket};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// let layer = RateLimitLayer::new(TokenBucket::per_minute(1)).named("api").dry_run();
    /// let service = ServiceBuilder::new()
    ///     .layer(layer.clone())
    ///     .service(service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::from("hello")))));
    ///
    /// for _ in 0..3 {
    ///     assert_eq!(service.clone().oneshot(Request::new(())).await?.body(), "hello");
    /// }
    /// let report = layer.dry_run_report("api").unwrap();
    /// assert_eq!((report.admitted, report.refused), (1, 2));
    /// # Ok(()) }
    /// ```
    #[doc(alias = "shadow")]
    pub fn dry_run(self) -> RateLimitLayer<Limit<Rule, P, K, C, DryRun, B>, S, R, O>
    where
        E: Enforcement,
    {
        self.map_limits(Limit::dry_run)
    }

    /// Enforces the limit for a percentage of its keys, and is a dry run for the others; see
    /// [`Limit::enforce_for`].
    ///
    /// # Panics
    ///
    /// When `percent` is above 100; see [`try_enforce_for`](Self::try_enforce_for).
    #[track_caller]
    pub fn enforce_for(
        self,
        percent: u8,
    ) -> RateLimitLayer<Limit<Rule, P, K, C, DryRun, B>, S, R, O>
    where
        E: Enforcement,
    {
        self.map_limits(|limit| limit.enforce_for(percent))
    }

    /// Enforces the limit for a share of its keys, as [`enforce_for`](Self::enforce_for) does, with
    /// a percentage from configuration.
    ///
    /// # Errors
    ///
    /// When `percent` is above 100.
    pub fn try_enforce_for(
        self,
        percent: u8,
    ) -> Result<RateLimitLayer<Limit<Rule, P, K, C, DryRun, B>, S, R, O>, Error>
    where
        E: Enforcement,
    {
        Ok(RateLimitLayer {
            registration: Arc::default(),
            limits: self.limits.try_enforce_for(percent)?,
            store: self.store,
            respond: self.respond,
            observer: self.observer,
            counts: self.counts,
        })
    }

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
    /// It gives back by the condition of [`charge_if`](Self::charge_if) or `charge_after`, and a
    /// handler that settles the [handle](Self::charge_handle) of this one settles it, too.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use http::{Request, Response};
    /// use tollgate::{RateLimitLayer, TokenBucket};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// let layer = RateLimitLayer::new(TokenBucket::per_minute(2)).named("api").candidate("api-next", TokenBucket::per_minute(5));
    /// let service = ServiceBuilder::new()
    ///     .layer(layer.clone())
    ///     .service(service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new()))));
    ///
    /// for _ in 0..7 {
    ///     service.clone().oneshot(Request::new(())).await?;
    /// }
    /// let report = layer.dry_run_report("api-next").unwrap();
    /// // `api` refused five of the requests, and `api-next` would have admitted three of these.
    /// assert_eq!((report.admitted, report.refused, report.admitted_alone, report.refused_alone), (5, 2, 3, 0));
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// When the name is no [`Policy`] or the limit's own, or the rule does not [fit](Store::fits)
    /// the layer's store; see [`try_candidate`](Self::try_candidate).
    #[track_caller]
    pub fn candidate(
        self,
        name: &str,
        rule: Rule,
    ) -> RateLimitLayer<WithCandidate<Rule, P, K, C, E, B>, S, R, O>
    where
        K: Clone,
        C: Clone,
        E: Enforcement,
        B: Charging + ForCandidate,
        S: Store<Rule>,
    {
        match self.try_candidate(name, rule) {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
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
    ) -> Result<RateLimitLayer<WithCandidate<Rule, P, K, C, E, B>, S, R, O>, Error>
    where
        K: Clone,
        C: Clone,
        E: Enforcement,
        B: Charging + ForCandidate,
        S: Store<Rule>,
    {
        let candidate = self.limits.candidate(Policy::try_new(name)?, rule);
        self.try_also(candidate)
    }

    /// Changes the limit's name, which is `default` unless set.
    ///
    /// Stacked layers need different names: clients, [outcomes](crate::Outcome::get) and shared
    /// stores distinguish limits by name. Layers do not see each other, so equal names are no error
    /// here, as they are in [`also`](Self::also). Responses and outcomes then report only the limit
    /// of that name that is nearest to exhaustion.
    ///
    /// # Panics
    ///
    /// When the name is no [`Policy`]: empty, too long, or not printable ASCII.
    #[track_caller]
    pub fn named(self, name: &str) -> Self {
        self.policy(Policy::new(name))
    }

    /// Changes the limit's policy: its name, and what clients read about it.
    pub fn policy(self, policy: Policy) -> Self {
        self.map_limits(|limit| limit.policy(policy))
    }
}

/// A limit, and another one with a candidate for its rule.
type WithCandidate<Rule, P, K, C, E, B> = (
    Limit<Rule, P, K, C, E, B>,
    Limit<Rule, FixedRule, K, C, DryRun, <B as ForCandidate>::Candidate>,
);

/// Settings of the dry run of the layer's one limit.
impl<Rule, P, K, C, B, S, R, O> RateLimitLayer<Limit<Rule, P, K, C, DryRun, B>, S, R, O> {
    /// Shows the decisions of the dry run in response headers and outcomes; see
    /// [`Limit::dry_run_shown`].
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use http::{Request, Response};
    /// use tollgate::{RateLimitLayer, TokenBucket};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// let service = ServiceBuilder::new()
    ///     .layer(RateLimitLayer::new(TokenBucket::per_minute(60)).named("next").dry_run().dry_run_shown())
    ///     .service(service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new()))));
    ///
    /// let response = service.oneshot(Request::new(())).await?;
    /// assert_eq!(response.headers()["ratelimit"], "\"next\";r=59;t=59");
    /// # Ok(()) }
    /// ```
    pub fn dry_run_shown(self) -> Self {
        self.map_limits(Limit::dry_run_shown)
    }
}

impl<Rule, P, K, C, E, S, R, O> RateLimitLayer<Limit<Rule, P, K, C, E>, S, R, O> {
    /// Charges only requests whose response fulfils a condition: look, then charge; see
    /// [`Limit::charge_after`].
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use http::{Request, Response, StatusCode};
    /// use tollgate::{RateLimitLayer, TokenBucket};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// // Three failed logins an hour. Logins that succeed are free.
    /// let login = ServiceBuilder::new()
    ///     .layer(RateLimitLayer::new(TokenBucket::per_hour(3)).charge_after(|response: &Response<String>| {
    ///         response.status() == StatusCode::UNAUTHORIZED
    ///     }))
    ///     .service(service_fn(async |password: Request<&str>| {
    ///         let mut response = Response::new(String::new());
    ///         if *password.body() != "secret" {
    ///             *response.status_mut() = StatusCode::UNAUTHORIZED;
    ///         }
    ///         Ok::<_, Infallible>(response)
    ///     }));
    ///
    /// let status = async |password| login.clone().oneshot(Request::new(password)).await.unwrap().status();
    /// for _ in 0..10 {
    ///     assert_eq!(status("secret").await, StatusCode::OK);
    /// }
    /// for _ in 0..3 {
    ///     assert_eq!(status("guess").await, StatusCode::UNAUTHORIZED);
    /// }
    /// assert_eq!(status("guess").await, StatusCode::TOO_MANY_REQUESTS);
    /// # Ok(()) }
    /// ```
    pub fn charge_after<F>(
        self,
        condition: F,
    ) -> RateLimitLayer<Limit<Rule, P, K, C, E, LookFirst<F>>, S, R, O> {
        self.map_limits(|limit| limit.charge_after(condition))
    }
}
