//! The layer: what an app team adds to its service.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use tower_layer::Layer;

use super::{
    limit::{Limit, Named, fit, names_differ},
    service::{Config, Counts, RateLimit},
};
use crate::{
    error::Error,
    missing::OneLimit,
    policy::Policy,
    store::{Backend, NeverFails, Store},
};

/// Limits the rate of requests in front of any tower service.
///
/// [`new`](Self::new) begins with the defaults: state in memory, one key for everybody, a cost of 1, answers over
/// HTTP and gRPC. Clones of the layer, and all services that it makes, share one
/// budget.
///
/// # The tower contract
///
/// The decision falls in `call`, on the instance that `poll_ready` made ready. An admitted request
/// goes to that very instance. A refusal drops it uncalled, and a fresh clone stays behind. So
/// does a delay: the waiting request asks a fresh clone for readiness after its wait, and holds none of
/// the inner service's capacity meanwhile.
///
/// # Cancellation
///
/// A request that is dropped while a store is asked is charged once at most. One that is dropped
/// while it is delayed is [counted](Self::cancelled) and settled back. Nothing awaits that settlement; if it fails, that is
/// [counted](Self::unsettled) too.
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
///     .service(service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::from("hello")))));
///
/// let first = service.ready().await?.call(Request::new(())).await?;
/// assert_eq!(first.body(), "hello");
/// let second = service.ready().await?.call(Request::new(())).await?;
/// assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(second.headers()["retry-after"], "60");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RateLimitLayer<L, S, R> {
    limits: L,
    store: S,
    respond: R,
    counts: Arc<Counts>,
}

impl<L, S, R> RateLimitLayer<L, S, R> {
    pub(crate) fn from_parts(limits: L, store: S, respond: R) -> Self {
        Self {
            limits,
            store,
            respond,
            counts: Arc::default(),
        }
    }

    /// The same layer with its state in another store.
    ///
    /// The store runs the rule's type, and can be cloned cheaply (an [`Arc`] of a store is one). One that can fail
    /// must say what happens then: [`fail_open`](crate::store::StoreExt::fail_open) or
    /// [`fail_closed`](crate::store::StoreExt::fail_closed).
    ///
    /// # Panics
    ///
    /// When the rule of a limit does not [fit](Store::fits) the store; see [`try_store`](Self::try_store). Rules made
    /// [per request](Self::rule) are known only then.
    #[must_use]
    #[track_caller]
    // The bound stands here rather than on `Layer` alone, so that the sentence about it points at this call.
    pub fn store<Rule, T>(self, store: T) -> RateLimitLayer<L, T, R>
    where
        T: Backend<Error: NeverFails> + Store<Rule>,
        L: Named<Rule>,
    {
        match self.try_store(store) {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
    }

    /// The same layer with its state in another store, for rules that configuration chose.
    ///
    /// ```
    /// use tollgate::{AnyRule, RateLimitLayer, prelude::*, store::{BoxStore, Error}};
    ///
    /// fn layer(rule: AnyRule, remote: BoxStore<AnyRule, Error>) -> Result<impl Sized, tollgate::Error> {
    ///     // Such as a token bucket whose burst has more units than a script of Redis can count.
    ///     RateLimitLayer::try_new(rule)?.try_store(remote.fail_closed())
    /// }
    /// # let _: fn(_, _) -> _ = layer;
    /// ```
    ///
    /// # Errors
    ///
    /// When the rule of a limit does not [fit](Store::fits) the store.
    pub fn try_store<Rule, T>(self, store: T) -> Result<RateLimitLayer<L, T, R>, Error>
    where
        T: Backend<Error: NeverFails> + Store<Rule>,
        L: Named<Rule>,
    {
        let Self {
            limits,
            respond,
            counts,
            ..
        } = self;
        fit(&limits, &store)?;
        Ok(RateLimitLayer {
            limits,
            store,
            respond,
            counts,
        })
    }

    /// The same layer, answering otherwise.
    #[must_use]
    pub fn respond<T>(self, respond: T) -> RateLimitLayer<L, S, T> {
        let Self {
            limits,
            store,
            counts,
            ..
        } = self;
        RateLimitLayer {
            limits,
            store,
            respond,
            counts,
        }
    }

    /// The same layer with one more limit, charged together with the others or not at all.
    ///
    /// # Panics
    ///
    /// When another limit of the layer has the same name, or the rule does not [fit](Store::fits) the layer's store; see
    /// [`try_also`](Self::try_also).
    #[must_use]
    #[track_caller]
    pub fn also<Rule, M>(self, limit: M) -> RateLimitLayer<(L, M), S, R>
    where
        L: Named<Rule>,
        M: Named<Rule>,
        S: Store<Rule>,
    {
        match self.try_also(limit) {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
    }

    /// The same layer with one more limit, charged together with the others or not at all.
    ///
    /// # Errors
    ///
    /// When another limit of the layer has the same name, or the rule does not [fit](Store::fits) the layer's store.
    pub fn try_also<Rule, M>(self, limit: M) -> Result<RateLimitLayer<(L, M), S, R>, Error>
    where
        L: Named<Rule>,
        M: Named<Rule>,
        S: Store<Rule>,
    {
        let Self {
            limits,
            store,
            respond,
            counts,
        } = self;
        fit(&limit, &store)?;
        let limits = (limits, limit);
        names_differ(&limits)?;
        Ok(RateLimitLayer {
            limits,
            store,
            respond,
            counts,
        })
    }

    /// How many delayed requests were dropped before their wait was over, and settled back.
    pub fn cancelled(&self) -> u64 {
        self.counts.cancelled.load(Ordering::Relaxed)
    }

    /// How many requests were refused because [the server lacks](crate::key::MissingKey::is_server_fault) what their key is made
    /// of, whatever the status, because the store [does not support](crate::store::Error::unsupported) their rule or state, or because
    /// a rule delayed them where nothing can hold a request; all clones and services together.
    ///
    /// Not 0: the server is set up wrongly. The feature `tracing` logs what to do.
    pub fn misconfigured(&self) -> u64 {
        self.counts.misconfigured.load(Ordering::Relaxed)
    }

    /// Returns how many charges may not have been corrected because a settlement failed.
    ///
    /// Counts the settlements of requests that were dropped while they were delayed, and all settlements that handlers made through the
    /// layer's store. The store [counts](Backend::unsettled) for all layers and clones that share it.
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

/// Settings of the layer's one limit; those of further ones are set before [`also`](RateLimitLayer::also).
impl<Rule, P, K, C, S, R> RateLimitLayer<Limit<Rule, P, K, C>, S, R> {
    fn map<M>(self, change: impl FnOnce(Limit<Rule, P, K, C>) -> M) -> RateLimitLayer<M, S, R> {
        let Self {
            limits,
            store,
            respond,
            counts,
        } = self;
        RateLimitLayer {
            limits: change(limits),
            store,
            respond,
            counts,
        }
    }

    /// The same layer, keyed by `key`.
    #[must_use]
    pub fn key<L>(self, key: L) -> RateLimitLayer<Limit<Rule, P, L, C>, S, R> {
        self.map(|limit| limit.key(key))
    }

    /// The same layer with a rule per request: a function `Fn(&Req) -> Option<Rule>`, where
    /// `None` is the layer's own rule.
    ///
    /// A rule that delays a request needs tokio to hold it, and each rule must [fit](Store::fits) the store;
    /// [`Limit::rule`](crate::Limit::rule) tells what happens otherwise.
    #[must_use]
    pub fn rule<Q>(self, per_request: Q) -> RateLimitLayer<Limit<Rule, Q, K, C>, S, R> {
        self.map(|limit| limit.rule(per_request))
    }

    /// The same layer with another cost: a [`Cost`](crate::Cost), or a function `Fn(&Req) -> Cost`.
    #[must_use]
    pub fn cost<D>(self, cost: D) -> RateLimitLayer<Limit<Rule, P, K, D>, S, R> {
        self.map(|limit| limit.cost(cost))
    }

    /// The same layer under another name than `default`.
    ///
    /// Layers that are stacked need names that differ: clients tell limits apart by them, and so do
    /// [outcomes](crate::Outcome::get), and stores that layers share. Layers do not see each other, so this is not an
    /// error, as it is in [`also`](Self::also): responses then tell one entry of that name, which is the nearest to exhaustion,
    /// and so do outcomes.
    ///
    /// # Panics
    ///
    /// When the name is no [`Policy`]: empty, too long, or not printable ASCII.
    #[must_use]
    #[track_caller]
    pub fn named(self, name: &str) -> Self {
        self.policy(Policy::new(name))
    }

    /// The same layer under another policy.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        self.map(|limit| limit.policy(policy))
    }
}

/// Settings of one limit, where there are several: calling them says what to do.
impl<A, B, S, R> RateLimitLayer<(A, B), S, R> {
    #[doc(hidden)]
    #[must_use]
    pub fn key<K>(self, _: K) -> Self
    where
        (A, B): OneLimit,
    {
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub fn rule<P>(self, _: P) -> Self
    where
        (A, B): OneLimit,
    {
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub fn cost<C>(self, _: C) -> Self
    where
        (A, B): OneLimit,
    {
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub fn named(self, _: &str) -> Self
    where
        (A, B): OneLimit,
    {
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub fn policy(self, _: Policy) -> Self
    where
        (A, B): OneLimit,
    {
        self
    }
}

impl<Svc, L, S, R> Layer<Svc> for RateLimitLayer<L, S, R>
where
    L: Clone,
    S: Backend<Error: NeverFails> + Clone,
    R: Clone,
{
    type Service = RateLimit<Svc, L, S, R>;

    fn layer(&self, inner: Svc) -> Self::Service {
        let Self {
            limits,
            store,
            respond,
            counts,
        } = self.clone();
        RateLimit::new(
            inner,
            Arc::new(Config {
                limits,
                store,
                respond,
                counts,
            }),
        )
    }
}

impl<L: fmt::Debug, S: fmt::Debug, R> fmt::Debug for RateLimitLayer<L, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("limits", &self.limits)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
