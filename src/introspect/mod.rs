//! The layer that looks bearer tokens up. The page of [`key::introspect`](crate::key::introspect)
//! describes it.
//!
//! It is a layer of its own, because extractors do not await, and because 401 must be answered
//! before a limit is charged. Refusals go through the responders of limits: a token that cannot be
//! checked is an undecided decision of the policy `introspection`, so 503, `Retry-After`, and
//! gRPC's `UNAVAILABLE` with `RetryInfo` come from the same code.

mod cache;
mod endpoint;
#[cfg(feature = "tracing")]
mod failure_log;
mod look_up;
mod service;

use std::{fmt, sync::Arc, time::Duration};

use tower_layer::Layer;

use self::{cache::TokenCache, service::IntrospectService};
pub use self::{
    endpoint::Endpoint,
    look_up::{Claims, InvalidAnswer, LookUp, Token},
};
use crate::{
    TokenBucket,
    error::Error,
    key::Key,
    respond::Http,
    stats::stats,
    time::{Clock, SystemClock},
};

/// Looks up the bearer token of each request, and inserts an [`Introspected`] into the request's
/// extensions.
///
/// A limit inside of it takes its key and its rule from there.
///
/// Clones share one cache. The page of the [module](crate::key::introspect) describes the answers,
/// and the bounds on memory and look-ups.
///
/// # Examples
///
/// Two plans with two quotas; anonymous requests are limited by address:
///
/// ```
/// use axum::{Router, extract::Request, routing::get};
/// use tollgate::{
///     key::{
///         Extension,
///         introspect::{Claims, Introspect, Introspected, Token},
///     },
///     prelude::*,
/// };
/// use tower::BoxError;
///
/// // Or `Endpoint::new("http://localhost:8080/introspect")?.basic("client", "secret")`.
/// async fn look_up(token: Token) -> Result<Option<Claims>, BoxError> {
///     Ok(match token.expose() {
///         "ann's" => Some(Claims::new().with_subject("ann").with_plan("gold")),
///         "bob's" => Some(Claims::new().with_subject("bob")),
///         _ => None,
///     })
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let introspect = Introspect::builder(look_up).allow_anonymous().build()?;
/// let limit = RateLimitLayer::new(TokenBucket::per_hour(2))
///     .key(Extension::new(Introspected::key).or(PeerIp::new()))
///     .rule(|request: &Request| {
///         let plan = request.extensions().get::<Introspected>()?.claims()?.plan()?;
///         (plan == "gold").then(|| TokenBucket::per_hour(5))
///     });
/// let app: Router = Router::new()
///     .route("/", get(async || "hello"))
///     .layer(limit)
///     .layer(introspect); // added last: the outermost
///
/// # use tower::ServiceExt;
/// # let admitted = async |token: &str| {
/// #     let mut admitted = 0;
/// #     for _ in 0..10 {
/// #         let request = Request::get("/").header("authorization", format!("Bearer {token}"));
/// #         let response = app.clone().oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
/// #         admitted += usize::from(response.status().is_success());
/// #     }
/// #     admitted
/// # };
/// // Of ten requests at once:
/// assert_eq!(admitted("ann's").await, 5);
/// assert_eq!(admitted("bob's").await, 2);
/// assert_eq!(admitted("guessed").await, 0); // 401
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[doc(alias("oauth", "rfc7662"))]
#[must_use = "a layer does nothing until it is added to a service"]
pub struct Introspect<R = Http> {
    shared: Arc<TokenCache>,
    respond: R,
}

impl Introspect {
    /// Creates a layer with default settings.
    pub fn new(look_up: impl LookUp) -> Self {
        let builder = Self::builder(look_up);
        Self {
            shared: Arc::new(TokenCache::new(builder.look_up, builder.settings)),
            respond: builder.respond,
        }
    }

    /// Creates a builder of a layer that looks tokens up through an [`Endpoint`] or an async
    /// function.
    pub fn builder<L: LookUp>(look_up: L) -> IntrospectBuilder<L> {
        IntrospectBuilder {
            look_up,
            settings: IntrospectSettings {
                max_age: Duration::from_secs(60),
                inactive_age: Duration::from_secs(10),
                serve_stale: Duration::ZERO,
                deadline: Duration::from_secs(1),
                retry_after: Duration::from_secs(1),
                capacity: 10_000,
                max_lookups: 64,
                max_rate: TokenBucket::per_second(500),
                allows_anonymous: false,
                fails_open: false,
                clock: Arc::new(SystemClock::new()),
            },
            respond: Http::new(),
        }
    }
}

impl<R> Introspect<R> {
    /// Returns the counters of this layer and its clones.
    pub fn stats(&self) -> IntrospectStats {
        self.shared.stats()
    }
}

impl<S, R: Clone> Layer<S> for Introspect<R> {
    type Service = IntrospectService<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        IntrospectService::new(inner, Arc::clone(&self.shared), self.respond.clone())
    }
}

impl<R> fmt::Debug for Introspect<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Introspect").field(&self.shared).finish()
    }
}

/// A builder of an [`Introspect`] layer.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{TokenBucket, key::introspect::{Endpoint, Introspect}};
///
/// let endpoint = Endpoint::new("http://localhost:8080/introspect")?.basic("api", "s3cret");
/// let layer = Introspect::builder(endpoint)
///     .max_age(Duration::from_secs(30))
///     .serve_stale(Duration::from_secs(600))
///     .max_rate(TokenBucket::per_second(100))
///     .build()?;
/// # let _ = layer;
///
/// let error = Introspect::builder(Endpoint::new("http://localhost:8080/")?)
///     .capacity(0)
///     .build()
///     .unwrap_err();
/// let message = "`capacity` of an introspection layer is 0: expected 1 to 10000000";
/// assert!(error.to_string().starts_with(message));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct IntrospectBuilder<L, R = Http> {
    look_up: L,
    settings: IntrospectSettings,
    respond: R,
}

impl<L: LookUp, R> IntrospectBuilder<L, R> {
    /// Sets the lifetime of an active token in the cache, 1 ms to a day; it ends earlier if the
    /// token expires. Default: 60 s.
    ///
    /// A revoked token is accepted for up to this time; for up to twice as long while more than
    /// [`max_lookups`](Self::max_lookups) tokens are renewed at once, which is counted as `crowded`
    /// and `stale`.
    pub fn max_age(mut self, time: Duration) -> Self {
        self.settings.max_age = time;
        self
    }

    /// Sets the lifetime of an inactive token in the cache, 1 ms to a day. Default: 10 s.
    pub fn inactive_age(mut self, time: Duration) -> Self {
        self.settings.inactive_age = time;
        self
    }

    /// Sets the time for which an answer is used beyond its lifetime while look-ups fail, 0 s to a
    /// day. Default: 0 s.
    ///
    /// It is never used after the token has expired. While the renewals of other tokens fail, one
    /// that finds no room counts as failed: from the first failure on.
    pub fn serve_stale(mut self, time: Duration) -> Self {
        self.settings.serve_stale = time;
        self
    }

    /// Sets the deadline of a look-up, 1 ms to a day. Default: 1 s.
    pub fn deadline(mut self, time: Duration) -> Self {
        self.settings.deadline = time;
        self
    }

    /// Sets the `Retry-After` of a 503, and the time between two failed look-ups of a token in the
    /// cache, 1 ms to a day. Default: 1 s.
    pub fn retry_after(mut self, time: Duration) -> Self {
        self.settings.retry_after = time;
        self
    }

    /// Sets the maximum number of active tokens in the cache, and of inactive ones, 1 to 10⁷ each.
    /// Default: 10,000.
    ///
    /// An active token takes up to 500 bytes and its claims, which have 4096 bytes at most; an
    /// inactive one up to 350 bytes.
    pub fn capacity(mut self, tokens: usize) -> Self {
        self.settings.capacity = tokens;
        self
    }

    /// Sets the maximum number of concurrent look-ups, 1 to 10⁵: of unknown tokens, and as many of
    /// tokens that were active. Default: 64.
    pub fn max_lookups(mut self, lookups: usize) -> Self {
        self.settings.max_lookups = lookups;
        self
    }

    /// Sets the maximum rate of look-ups of tokens that are not cached as active. Default: 500 per
    /// second.
    pub fn max_rate(mut self, rule: TokenBucket) -> Self {
        self.settings.max_rate = rule;
        self
    }

    /// Passes on requests without a token, without claims. Without this, they are refused with 401.
    pub fn allow_anonymous(mut self) -> Self {
        self.settings.allows_anonymous = true;
        self
    }

    /// Passes on requests whose look-up fails, without claims. Without this, they are refused
    /// with 503.
    ///
    /// Requests whose token is not looked up because too many others are, are always refused
    /// with 503, and so are those whose look-up may have failed because of the token: it panicked,
    /// or returned an [`InvalidAnswer`]. An [`Endpoint`] does so for all answers that it cannot
    /// read, except for the statuses 401, 408, 429 and 5xx.
    ///
    /// Anybody can then pass during an outage: the service must not take [`Introspected`] for a
    /// proof of identity.
    pub fn fail_open(mut self) -> Self {
        self.settings.fails_open = true;
        self
    }

    /// Sets the clock. It must be near Unix time, because tokens expire by it. Default:
    /// [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock + Send + Sync + 'static) -> Self {
        self.settings.clock = Arc::new(clock);
        self
    }

    /// Sets the responder of refusals. Default: [`Http`], which answers gRPC, too.
    pub fn respond<R2>(self, respond: R2) -> IntrospectBuilder<L, R2> {
        IntrospectBuilder {
            look_up: self.look_up,
            settings: self.settings,
            respond,
        }
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is out of its range.
    pub fn build(self) -> Result<Introspect<R>, Error> {
        self.settings.check()?;
        Ok(Introspect {
            shared: Arc::new(TokenCache::new(self.look_up, self.settings)),
            respond: self.respond,
        })
    }
}

impl_debug!(IntrospectBuilder<L, R>);

/// The settings of a layer. The setters of [`IntrospectBuilder`] describe them.
struct IntrospectSettings {
    max_age: Duration,
    inactive_age: Duration,
    serve_stale: Duration,
    deadline: Duration,
    retry_after: Duration,
    capacity: usize,
    max_lookups: usize,
    max_rate: TokenBucket,
    allows_anonymous: bool,
    fails_open: bool,
    clock: Arc<dyn Clock + Send + Sync>,
}

const MILLISECOND: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);

impl IntrospectSettings {
    /// Returns an error for the first value out of its range.
    fn check(&self) -> Result<(), Error> {
        for (name, value, least, most) in [
            ("max_age", self.max_age, MILLISECOND, DAY),
            ("inactive_age", self.inactive_age, MILLISECOND, DAY),
            ("serve_stale", self.serve_stale, Duration::ZERO, DAY),
            ("deadline", self.deadline, MILLISECOND, DAY),
            ("retry_after", self.retry_after, MILLISECOND, DAY),
        ] {
            if value < least || value > most {
                return Err(Error::new(format!(
                    "`{name}` of an introspection layer is {value:?}: expected {least:?} to {most:?}; pass such a time to \
                     `IntrospectBuilder::{name}`"
                )));
            }
        }
        for (name, value, most) in [
            ("capacity", self.capacity, 10_000_000),
            ("max_lookups", self.max_lookups, 100_000),
        ] {
            if value == 0 || value > most {
                return Err(Error::new(format!(
                    "`{name}` of an introspection layer is {value}: expected 1 to {most}; pass such a number to \
                     `IntrospectBuilder::{name}`"
                )));
            }
        }
        Ok(())
    }
}

/// The result of a look-up, which an [`Introspect`] layer inserts into the extensions of each
/// request that it passes on.
///
/// Key and rule of a limit come from it:
///
/// ```
/// use http::Request;
/// use tollgate::{RateLimitLayer, TokenBucket, key::{Extension, introspect::Introspected}};
///
/// let limit = RateLimitLayer::new(TokenBucket::per_minute(60))
///     .key(Extension::new(Introspected::key))
///     .rule(|request: &Request<String>| {
///         let introspected = request.extensions().get::<Introspected>()?;
///         match introspected.claims()?.plan()? {
///             "gold" => Some(TokenBucket::per_minute(6_000)),
///             _ => None,
///         }
///     });
/// # let _ = limit;
/// ```
#[derive(Clone, Debug)]
pub struct Introspected {
    checked: Option<Checked>,
    is_unchecked: bool,
    is_stale: bool,
}

/// The claims and the key of a token that was active at its look-up.
#[derive(Clone, Debug)]
struct Checked {
    claims: Arc<Claims>,
    key: Key,
}

impl Introspected {
    /// Returns the claims of the token; `None` if the request has none, or it [could not be
    /// checked](Self::is_unchecked).
    pub fn claims(&self) -> Option<&Claims> {
        Some(&*self.checked.as_ref()?.claims)
    }

    /// Returns a key of the token's subject; of its client if there is no subject; of its digest if
    /// there is neither.
    ///
    /// Subjects and clients with equal names have different keys. A token without either has a
    /// budget of its own.
    ///
    /// Returns `None` if there are no claims. With [`or`](crate::key::KeyExtractorExt::or), such
    /// requests get another key.
    pub fn key(&self) -> Option<Key> {
        Some(self.checked.as_ref()?.key)
    }

    /// Returns `true` if the token could not be checked, and the layer
    /// [passes](IntrospectBuilder::fail_open) such requests.
    pub fn is_unchecked(&self) -> bool {
        self.is_unchecked
    }

    /// Returns `true` if the claims are [older than their
    /// lifetime](IntrospectBuilder::serve_stale), because the look-up failed.
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }
}

stats! {
    /// Counters of an [`Introspect`] layer and its clones since it was built.
    ///
    /// ```
    /// use tollgate::key::introspect::IntrospectStats;
    ///
    /// /// The share of tokens that were answered from the cache, in percent.
    /// fn hit_rate(stats: &IntrospectStats) -> u64 {
    ///     100 * stats.hits / (stats.hits + stats.lookups + stats.shared).max(1)
    /// }
    /// # assert_eq!(hit_rate(&IntrospectStats::default()), 0);
    /// ```
    pub struct IntrospectStats {
        counted {
            /// Requests whose token was answered from the cache.
            hits = "tollgate_introspect_hits_total",
            /// Look-ups of tokens that were started.
            lookups = "tollgate_introspect_lookups_total",
            /// Requests that waited for a look-up that another request had started.
            shared = "tollgate_introspect_shared_total",
            /// Look-ups that failed, including those that timed out, were aborted, or had an
            /// invalid answer.
            failed = "tollgate_introspect_failed_total",
            /// Look-ups without an answer within the deadline.
            timeouts = "tollgate_introspect_timeouts_total",
            /// Look-ups with an answer that could not be read.
            invalid_answers = "tollgate_introspect_invalid_answers_total",
            /// Look-ups that panicked, or whose runtime has shut down.
            aborted = "tollgate_introspect_aborted_total",
            /// Look-ups of active tokens that had expired by this node's clock.
            ///
            /// They count as inactive. If there are many, a clock is wrong.
            expired = "tollgate_introspect_expired_total",
            /// Requests whose token was not looked up, because too many others were.
            ///
            /// They are `stale` or `unavailable`.
            crowded = "tollgate_introspect_over_capacity_total",
            /// Requests that were answered by claims older than their lifetime, because the look-up
            /// failed, or too many others were made.
            stale = "tollgate_introspect_requests_total"["outcome" = "stale"],
            /// Requests that were refused with 503, because their token could not be checked.
            unavailable = "tollgate_introspect_requests_total"["outcome" = "unavailable"],
            /// Requests that were passed on although their token could not be checked.
            unchecked = "tollgate_introspect_requests_total"["outcome" = "unchecked"],
            /// Requests that were refused with 401, because their token is not active.
            inactive = "tollgate_introspect_requests_total"["outcome" = "inactive"],
            /// Requests that were refused with 401, because their `Authorization` contains no valid
            /// token.
            malformed = "tollgate_introspect_requests_total"["outcome" = "malformed"],
            /// Requests without a token, refused with 401 or passed on.
            anonymous = "tollgate_introspect_requests_total"["outcome" = "anonymous"],
        }
        given {
            /// Active tokens in the cache, including those whose lifetime has ended.
            cached: u64 = "tollgate_introspect_tokens"["state" = "active"],
            /// Inactive tokens in the cache, including those whose lifetime has ended.
            cached_inactive: u64 = "tollgate_introspect_tokens"["state" = "inactive"],
            /// Look-ups in flight.
            in_flight: u64 = "tollgate_introspect_in_flight",
        }
    }
    struct IntrospectCounters;
}
