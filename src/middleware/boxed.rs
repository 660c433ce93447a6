//! The creation of layers: of one limit, and of limits in boxes, whose types can be written down.

use std::{convert::Infallible, sync::Arc};

#[cfg(feature = "config")]
use super::{
    config::{BoxObserver, Config},
    limits::check_fit,
};
use super::{layer::RateLimitLayer, limit::Limit, limits::check_names, per_request::ReadRequest};
#[cfg(feature = "config")]
use crate::store::{Backend, NeverFails, Store};
use crate::{
    algorithm::Algorithm,
    charging::{ChargeHandle, Settle},
    decision::Cost,
    error::Error,
    key::{Key, MissingKey},
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

#[cfg(feature = "config")]
impl<Req, Rule, Res, S, R> RateLimitLayer<Vec<BoxLimit<Req, Rule, Res>>, S, R>
where
    Rule: Algorithm,
    S: Backend<Error: NeverFails> + Store<Rule> + Clone + Send + Sync + 'static,
{
    /// Returns the observers.
    pub(crate) fn observer(&self) -> Option<&BoxObserver> {
        self.observer.as_ref()
    }

    /// Checks that the store can run the rule of a limit.
    ///
    /// # Errors
    ///
    /// The store's error about the rule.
    pub(crate) fn check_limit(&self, limit: &BoxLimit<Req, Rule, Res>) -> Result<(), Error> {
        check_fit(limit, &self.store).map(drop)
    }

    /// Returns the settings of a service with other limits, none included, and all else of this
    /// layer: for a service that chooses among several.
    ///
    /// # Errors
    ///
    /// When two limits have the same name, or a rule does not fit the store.
    pub(crate) fn config_of(
        &self,
        limits: Vec<BoxLimit<Req, Rule, Res>>,
    ) -> Result<Arc<Config<Vec<BoxLimit<Req, Rule, Res>>, S, R>>, Error>
    where
        R: Clone,
    {
        check_names(&limits)?;
        let watches = check_fit(&limits, &self.store)?;
        let (_, mut layer) = self.clone().take_limits();
        layer.watches = watches;
        Ok(Arc::new(Config::new(layer.with_limits(limits))))
    }
}

impl<L, Rule: Algorithm> RateLimitLayer<L, Local<Rule>, Http> {
    /// Begins with limits that were checked.
    pub(crate) fn of(limits: L) -> Self {
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

/// A limit of any key, cost, rule for each request, and condition. Made by [`Limit::boxed`].
///
/// `Req` and `Res` are the request and the response of the services that it limits. `Res` need not
/// be named if [both are `http`'s with one type of body](Exchange), as in axum and tonic.
pub type BoxLimit<Req, Rule, Res = <Req as Exchange>::Response> =
    Limit<Rule, BoxBy<Req, Rule>, BoxSettle<Req, Res>>;

/// The parts of a [`BoxLimit`] that read a request.
pub struct BoxBy<Req, Rule>(pub(super) Arc<dyn ReadRequest<Req, Rule> + Send + Sync>);

/// The part of a [`BoxLimit`] that reads a response.
pub struct BoxSettle<Req, Res>(pub(super) Option<Arc<dyn Settle<Req, Res> + Send + Sync>>);

impl_clone!(BoxBy<Req, Rule>, { 0 });

impl_clone!(BoxSettle<Req, Res>, { 0 });

impl_debug!(BoxBy<Req, Rule>);

impl_debug!(BoxSettle<Req, Res>);

impl<Req, Rule> ReadRequest<Req, Rule> for BoxBy<Req, Rule> {
    fn read_at_hand(&self, req: &Req, rule: &mut Option<Rule>) -> Option<(Key, Cost)> {
        self.0.read_at_hand(req, rule)
    }

    fn read(&self, req: &Req, rule: &mut Option<Rule>) -> Result<Option<(Key, Cost)>, MissingKey> {
        self.0.read(req, rule)
    }
}

impl<Req, Res> Settle<Req, Res> for BoxSettle<Req, Res> {
    fn is_charged(&self, res: &Res) -> bool {
        let settle = self.0.as_ref();
        settle.is_none_or(|settle| settle.is_charged(res))
    }

    fn hand_over(&self, req: &mut Req, handle: ChargeHandle) -> Option<ChargeHandle> {
        match &self.0 {
            Some(settle) => settle.hand_over(req, handle),
            None => Some(handle),
        }
    }
}
