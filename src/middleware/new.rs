//! Constructors with the defaults. The one file of the middleware that names a concrete store and a
//! protocol.

use std::{convert::Infallible, sync::Arc};

use super::{boxed::BoxLimit, layer::RateLimitLayer, limit::Limit, limits::check_names};
use crate::{
    algorithm::Algorithm,
    error::Error,
    respond::{Exchange, Http},
    store::{BoxStore, Local},
};

impl<Rule: Algorithm> RateLimitLayer<Limit<Rule>, Local<Rule>, Http> {
    /// Limits all requests together by `rule`, with state in memory and answers over HTTP and gRPC.
    ///
    /// # Panics
    ///
    /// When [`try_new`](Self::try_new) fails: never with the feature `tokio`.
    #[track_caller]
    pub fn new(rule: Rule) -> Self {
        Limit::new(rule).into()
    }

    /// Limits all requests together by a `rule` from configuration, with state in memory and
    /// answers over HTTP and gRPC.
    ///
    /// # Errors
    ///
    /// When the rule [may delay](Algorithm::may_delay) requests, and the crate was built without
    /// the feature `tokio`, which delays need.
    pub fn try_new(rule: Rule) -> Result<Self, Error> {
        Limit::try_new(rule).map(Self::from)
    }
}

/// Begins with a limit, with state in memory and answers over HTTP and gRPC.
///
/// ```
/// use tollgate::{Limit, RateLimitLayer, TokenBucket, key::PeerIp};
///
/// let limit = Limit::new(TokenBucket::per_second(10)).named("api").key(PeerIp::new());
/// let layer = RateLimitLayer::from(limit);
/// # let _ = layer;
/// ```
impl<Rule: Algorithm, B, T> From<Limit<Rule, B, T>>
    for RateLimitLayer<Limit<Rule, B, T>, Local<Rule>, Http>
{
    fn from(limit: Limit<Rule, B, T>) -> Self {
        Self::of(limit)
    }
}

impl<Rule: Algorithm, Req, Res> RateLimitLayer<Vec<BoxLimit<Req, Rule, Res>>, Local<Rule>, Http> {
    /// Begins with a list of limits whose number is known only at run time, with state in memory
    /// and answers over HTTP and gRPC.
    ///
    /// A request passes if all limits admit it, and is charged to all of them or to none. On a
    /// [boxed store](crate::store::StoreExt::boxed), the layer is a
    /// [`BoxLayer`](crate::BoxLayer). A responder of your own must be able to [refuse
    /// late](crate::respond::RefuseLate).
    ///
    /// # Errors
    ///
    /// When the list is empty, two limits have the same name, or the list lacks the limit that one
    /// is [compared with](Limit::compared_with).
    pub fn list(limits: Vec<BoxLimit<Req, Rule, Res>>) -> Result<Self, Error> {
        if limits.is_empty() {
            return Err(Error::new(
                "a layer of no limits would admit all requests: expected one limit at least; leave the layer out if nothing is limited",
            ));
        }
        check_names(&limits)?;
        Ok(Self::of(limits))
    }
}

impl<L, Rule: Algorithm> RateLimitLayer<L, Local<Rule>, Http> {
    fn of(limits: L) -> Self {
        Self {
            registration: Arc::default(),
            limits,
            store: Local::new(),
            // It runs any rule.
            watches: Vec::new(),
            respond: Http::new(),
            observer: None,
            counts: Arc::default(),
        }
    }
}

/// A layer with a list of [boxed limits](BoxLimit), on a boxed store. Made by
/// [`RateLimitLayer::list`].
///
/// ```
/// use axum::{Router, body::Body, extract::Request, routing::get};
/// use tollgate::{AnyRule, BoxLayer, BoxLimit, Limit, RateLimitLayer, prelude::*};
///
/// struct App {
///     limits: BoxLayer<Request, AnyRule>,
/// }
///
/// fn app(rules: &[(&str, &str)]) -> Result<App, tollgate::Error> {
///     let limits = rules.iter().map(|(name, rule)| {
///         let limit = Limit::try_new(rule.parse::<AnyRule>()?)?;
///         Ok(limit.policy(tollgate::Policy::try_new(name)?).key(PeerIp::new()).boxed())
///     });
///     let limits = limits.collect::<Result<Vec<_>, tollgate::Error>>()?;
///     Ok(App { limits: RateLimitLayer::list(limits)?.store(Local::new().boxed()) })
/// }
///
/// let app = app(&[("second", "token-bucket 10/1s"), ("day", "fixed-window 1000/1d")])?;
/// let router: Router = Router::new().route("/", get(async || "hello")).layer(app.limits);
/// # let _ = router;
/// # Ok::<(), tollgate::Error>(())
/// ```
pub type BoxLayer<Req, Rule, Res = <Req as Exchange>::Response, R = Http> =
    RateLimitLayer<Vec<BoxLimit<Req, Rule, Res>>, BoxStore<Rule, Infallible>, R>;
