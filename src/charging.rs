//! Charges that are corrected after the request was admitted: by its handler, its response, or the
//! end of its body.
//!
//! The type of a limit has one parameter for it: `()`, [`Reserve`], [`HandOver`] or [`LookFirst`].
//! It is a type and no value, because it brings bounds that only such limits need: a request that
//! can carry a handle, a responder that can refuse late.
//!
//! A handle is erased from the types of its layer, so that handlers can name it. It points to the
//! layer's settings, which are shared anyway, and finds the limit's rule by policy. So a handle is
//! one allocation, its box in the request's extensions, and one more for a rule that was selected
//! for the request; what the layer keeps until the response is another. The first clone of a handle
//! allocates the count of bodies that all clones share.

use std::{
    any::Any,
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use crate::{
    decision::Charge,
    error::Error,
    key::Key,
    outcome::Taken,
    policy::Policy,
    store::{BoxFuture, Settlement},
};

/// Charges each request that is admitted, and refunds by its response. Made by
/// [`Limit::charge_if`](crate::Limit::charge_if).
///
/// ```
/// use http::Response;
/// use tollgate::{By, Limit, Reserve, TokenBucket, key::Global};
///
/// let limit: Limit<TokenBucket, By<Global>, Reserve<fn(&Response<String>) -> bool>> =
///     Limit::new(TokenBucket::per_second(10))
///         .charge_if(|response| response.status().is_success());
/// # let _ = limit;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reserve<F> {
    pub(crate) condition: F,
}

/// Charges each request that is admitted, and lets its handler correct the charge. Made by
/// [`Limit::charge_handle`](crate::Limit::charge_handle).
///
/// With a condition of [`charge_if`](crate::Limit::charge_if), `F`, the response may refund
/// the charge, too.
///
/// ```
/// use tollgate::{By, Limit, TokenBucket, HandOver, key::Global};
///
/// let limit: Limit<TokenBucket, By<Global>, HandOver> =
///     Limit::new(TokenBucket::per_second(10)).charge_handle();
/// # let _ = limit;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HandOver<F = ()> {
    pub(crate) condition: F,
}

/// Looks before the request and charges after its response. Made by
/// [`Limit::charge_after`](crate::Limit::charge_after).
///
/// ```
/// use http::{Response, StatusCode};
/// use tollgate::{By, Limit, TokenBucket, LookFirst, key::Global};
///
/// let failures: Limit<TokenBucket, By<Global>, LookFirst<fn(&Response<String>) -> bool>> =
///     Limit::new(TokenBucket::per_hour(3))
///         .charge_after(|response| response.status() == StatusCode::UNAUTHORIZED);
/// # let _ = failures;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LookFirst<F> {
    pub(crate) condition: F,
}

/// Decides by a response if its request is charged. Implemented by closures `Fn(&Res) -> bool`, and
/// by `()`, which charges every request.
///
/// ```
/// use http::{Response, StatusCode};
/// use tollgate::{ChargeIf, Limit, TokenBucket};
///
/// /// Does not charge responses from a cache.
/// #[derive(Clone)]
/// struct Uncached;
///
/// impl<B> ChargeIf<Response<B>> for Uncached {
///     fn is_charged(&self, response: &Response<B>) -> bool {
///         !response.headers().contains_key("x-cache-hit")
///     }
/// }
///
/// assert!(Uncached.is_charged(&Response::new(())));
/// let limit = Limit::new(TokenBucket::per_minute(100)).charge_if(Uncached);
/// # let _ = limit;
/// ```
pub trait ChargeIf<Res> {
    /// Set if every request is charged.
    #[doc(hidden)]
    const ALWAYS: bool = false;

    /// Returns `true` if the request of this response is charged.
    fn is_charged(&self, res: &Res) -> bool;
}

impl<Res, F: Fn(&Res) -> bool> ChargeIf<Res> for F {
    fn is_charged(&self, res: &Res) -> bool {
        self(res)
    }
}

impl<Res> ChargeIf<Res> for () {
    const ALWAYS: bool = true;

    fn is_charged(&self, _: &Res) -> bool {
        true
    }
}

/// The effect of a request and its response on a charge.
#[doc(hidden)]
pub trait Settle<Req, Res> {
    /// Returns `true` if a request with this response is charged.
    fn is_charged(&self, res: &Res) -> bool;

    /// Puts the handle of a charge into its request if the handler may settle it. Returns the
    /// handle if the response may settle it, too.
    fn hand_over(&self, _: &mut Req, handle: ChargeHandle) -> Option<ChargeHandle> {
        Some(handle)
    }
}

impl<Req, Res> Settle<Req, Res> for () {
    fn is_charged(&self, _: &Res) -> bool {
        true
    }
}

impl<Req, Res, F: ChargeIf<Res>> Settle<Req, Res> for Reserve<F> {
    fn is_charged(&self, res: &Res) -> bool {
        self.condition.is_charged(res)
    }
}

// On a dry run it reserves.
impl<Req, Res, F: ChargeIf<Res>> Settle<Req, Res> for LookFirst<F> {
    fn is_charged(&self, res: &Res) -> bool {
        self.condition.is_charged(res)
    }
}

impl<Req: CarryHandle, Res, F: ChargeIf<Res>> Settle<Req, Res> for HandOver<F> {
    fn is_charged(&self, res: &Res) -> bool {
        self.condition.is_charged(res)
    }

    fn hand_over(&self, req: &mut Req, handle: ChargeHandle) -> Option<ChargeHandle> {
        // Only a handle that two may settle needs to be shared.
        let kept = (!F::ALWAYS).then(|| handle.clone());
        req.carry(handle);
        kept
    }
}

/// The charge of a request, which its handler may correct once.
///
/// A limit with [`charge_handle`](crate::Limit::charge_handle) puts it into the extensions of each
/// request that it charged. If several limits do, [`of`](Self::of) selects one by name.
///
/// The cost of the request is reserved when it is admitted. A handle that is dropped leaves it
/// charged. A request that was not charged has no handle: an exempt one, and one that
/// [`fail_open`](crate::store::StoreExt::fail_open) admitted while the store failed.
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use tollgate::{ChargeHandle, Cost, RateLimitLayer, TokenBucket};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
/// let service = ServiceBuilder::new()
///     // Reserves 100 units for each request.
///     .layer(
///         RateLimitLayer::new(TokenBucket::per_minute(1_000))
///             .cost(Cost::new(100).unwrap())
///             .charge_handle(),
///     )
///     .service(service_fn(async |request: Request<()>| {
///         // No request is exempt, and the store cannot fail.
///         let charge = request.extensions().get::<ChargeHandle>().unwrap();
///         // It turned out to cost 7.
///         charge.settle(7).expect("this handler settles it once").await;
///         Ok::<_, Infallible>(Response::new(String::new()))
///     }));
///
/// let response = service.oneshot(Request::new(())).await?;
/// assert_eq!(response.headers()["ratelimit"], "\"default\";r=993;t=60");
/// # Ok(()) }
/// ```
#[must_use = "a charge stays as it is unless it is settled"]
pub struct ChargeHandle {
    layer: Arc<dyn SettleCharges>,
    limit: ChargedLimit,
    charge: Charge,
    settled: Taken,
    /// The count of the bodies that settle the charge, shared by clones; allocated with the first.
    of_bodies: OnceLock<Arc<OnceLock<Usage>>>,
    /// Set if a layer counts the body that responds to the request with this handle.
    is_counted: bool,
    /// The handle of another limit of the request.
    next: Option<Box<Self>>,
    /// The handle of a candidate for the limit's rule, which is settled to the same units.
    candidate: Option<Box<Self>>,
}

impl ChargeHandle {
    pub(crate) fn new(layer: Arc<dyn SettleCharges>, limit: ChargedLimit, charge: Charge) -> Self {
        Self {
            layer,
            limit,
            charge,
            settled: Taken::default(),
            of_bodies: OnceLock::new(),
            is_counted: false,
            next: None,
            candidate: None,
        }
    }

    /// Settles the charge of a candidate for the limit's rule, too.
    pub(crate) fn add_candidate(&mut self, mut candidate: Self) {
        candidate.candidate = self.candidate.take();
        self.candidate = Some(Box::new(candidate));
    }

    /// Returns the handles of candidates.
    fn candidates(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(self.candidate.as_deref(), |handle| {
            handle.candidate.as_deref()
        })
    }

    /// Adds the handle of another limit of the request.
    pub(crate) fn beside(mut self, other: Self) -> Self {
        let mut last = &mut self.next;
        while let Some(next) = last {
            last = &mut next.next;
        }
        *last = Some(Box::new(other));
        self
    }

    /// Corrects the charge to the `actual` cost in units: less is a refund, 0 of everything; more
    /// is charged, even into debt.
    ///
    /// A store in memory settles at once. Others settle in the background, whether the result is
    /// awaited or not.
    ///
    /// # Errors
    ///
    /// When the charge was settled before, by this handle or a clone of it, or when the request has
    /// several handles: then select one with [`of`](Self::of).
    pub fn settle(&self, actual: u64) -> Result<Settling, Error> {
        for candidate in self.take()? {
            // In the background: it has no effect on the request.
            drop(candidate.settle_one(actual));
        }
        Ok(self.settle_one(actual))
    }

    /// Gives back the whole charge.
    ///
    /// # Errors
    ///
    /// Those of [`settle`](Self::settle).
    pub fn refund(&self) -> Result<Settling, Error> {
        self.settle(0)
    }

    /// Begins to count the actual cost from 0, for work that learns it bit by bit, such as a
    /// stream. Settles when the [`Usage`] is dropped.
    ///
    /// # Errors
    ///
    /// Those of [`settle`](Self::settle). Afterwards the charge cannot be settled otherwise.
    pub fn usage(&self) -> Result<Usage, Error> {
        // Has taken the charge from all other handles.
        let own = |handle: &Self| Self {
            settled: Taken::default(),
            candidate: None,
            ..handle.clone()
        };
        let mut taken = own(self);
        for candidate in self.take()? {
            taken.add_candidate(own(candidate));
        }
        Ok(Usage::new(taken))
    }

    /// Marks the handle of which `clone` is a clone: a layer counts the body that responds to the
    /// request. Returns `false` if an outer layer does so already.
    pub(crate) fn begin_count(&mut self, clone: &Self) -> bool {
        let mut next = Some(self);
        while let Some(handle) = next {
            let shared = handle.of_bodies.get().zip(clone.of_bodies.get());
            if shared.is_some_and(|(a, b)| Arc::ptr_eq(a, b)) {
                return !std::mem::replace(&mut handle.is_counted, true);
            }
            next = handle.next.as_deref_mut();
        }
        false
    }

    /// Returns the count of all bodies that respond to clones of the request: a layer that tries it
    /// again drops one before it gets the next.
    ///
    /// Takes no charge. Settles when no body and no handle is left, unless a handle settled it.
    pub(crate) fn usage_of_bodies(&self) -> Usage {
        let count = || {
            Usage::new(Self {
                // That of this handle would keep itself.
                of_bodies: OnceLock::new(),
                ..self.clone()
            })
        };
        let of_bodies = self.of_bodies.get_or_init(Arc::default);
        of_bodies.get_or_init(count).clone()
    }

    /// Returns the handle of the limit of this name. If stacked layers have the same name by
    /// mistake, returns the outermost handle that is not settled.
    ///
    /// # Errors
    ///
    /// When the request has no handle of this name.
    pub fn of(&self, policy: &str) -> Result<Self, Error> {
        let mut named = self
            .iter()
            .filter(|handle| handle.policy().name() == policy);
        let first = named.next();
        let open = first
            .into_iter()
            .chain(named)
            .find(|handle| !handle.settled.is_taken());
        let found = open.or(first).map(|handle| Self {
            next: None,
            ..handle.clone()
        });
        found.ok_or_else(|| {
            Error::new(format!(
                "no charge handle of a limit named `{policy}`: expected one of {}; add `.charge_handle()` to the limit",
                self.names()
            ))
        })
    }

    /// Returns the policy of the limit.
    pub fn policy(&self) -> &Policy {
        &self.limit.policy
    }

    /// Returns the key that was charged.
    pub fn key(&self) -> &Key {
        &self.limit.key
    }

    /// Returns the units that were charged.
    pub fn charged(&self) -> u64 {
        self.charge.cost
    }

    fn settle_one(&self, actual: u64) -> Settling {
        self.layer
            .settle(&self.limit, self.charge.duplicate(), actual)
    }

    /// Returns `true` if the handler of the request has a clone of this handle.
    pub(crate) fn is_shared(&self) -> bool {
        self.settled.is_shared()
    }

    /// Returns `true` if no other limit handed over its charge.
    pub(crate) fn is_one(&self) -> bool {
        self.next.is_none()
    }

    /// Returns the names of the limits, for messages.
    pub(crate) fn names(&self) -> String {
        let names: Vec<_> = self
            .iter()
            .map(|handle| format!("`{}`", handle.policy()))
            .collect();
        names.join(", ")
    }

    fn iter(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |handle| handle.next.as_deref())
    }

    /// Takes the charge, once, and returns the candidates whose charges nobody has taken.
    fn take(&self) -> Result<Vec<&Self>, Error> {
        if !self.is_one() {
            return Err(Error::new(format!(
                "several limits handed over their charges: expected the name of one of {}; select it by `.of(…)`",
                self.names()
            )));
        }
        if !self.settled.take() {
            return Err(Error::new(format!(
                "the charge of the limit `{}` was settled already: expected one settlement for each charge; settle it in one place",
                self.policy()
            )));
        }
        let candidates = self.candidates();
        Ok(candidates.filter(|own| own.settled.take()).collect())
    }
}

impl Clone for ChargeHandle {
    /// Returns a handle of the same charge, which one of both settles.
    fn clone(&self) -> Self {
        Self {
            layer: Arc::clone(&self.layer),
            limit: self.limit.clone(),
            charge: self.charge.duplicate(),
            settled: self.settled.clone(),
            of_bodies: Arc::clone(self.of_bodies.get_or_init(Arc::default)).into(),
            is_counted: self.is_counted,
            next: self.next.clone(),
            candidate: self.candidate.clone(),
        }
    }
}

impl_debug!(
    ChargeHandle,
    |it| policy = it.policy(),
    charged = it.charged()
);

/// Carries a [`ChargeHandle`] from the layer to the handler of the request.
///
/// Implemented by `http::Request`, in its extensions. Implement it for requests of your own to use
/// [`charge_handle`](crate::Limit::charge_handle) without HTTP:
///
/// ```
/// use tollgate::{CarryHandle, ChargeHandle};
///
/// struct Job {
///     charge: Option<ChargeHandle>,
/// }
///
/// impl CarryHandle for Job {
///     fn carry(&mut self, handle: ChargeHandle) {
///         self.charge = Some(handle);
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry a charge handle to its handler",
    note = "the `Request` of the crate `http` can; implement `tollgate::CarryHandle` for requests of your own, or use `.charge_if(…)`, which needs no handle"
)]
pub trait CarryHandle {
    /// Receives the handle of a limit that charged the request, once for each such limit.
    fn carry(&mut self, handle: ChargeHandle);
}

/// The end of a settlement that a [`ChargeHandle`] began.
///
/// A store in memory has settled already. Others settle in the background, also if this future is
/// dropped; await it to know when they have. A settlement that fails is
/// [counted](crate::RateLimitLayer::unsettled).
pub struct Settling(Option<BoxFuture<()>>);

impl Settling {
    /// Returns a settlement that was made.
    pub(crate) fn done() -> Self {
        Self(None)
    }

    pub(crate) fn pending(future: BoxFuture<()>) -> Self {
        Self(Some(future))
    }

    /// Returns `true` if the settlement was made.
    pub fn is_done(&self) -> bool {
        self.0.is_none()
    }
}

impl Future for Settling {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(future) = &mut self.0 else {
            return Poll::Ready(());
        };
        let polled = future.as_mut().poll(cx);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl fmt::Debug for Settling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settling")
            .field("done", &self.is_done())
            .finish()
    }
}

/// Settles the charges of a layer, whatever its types are.
pub(crate) trait SettleCharges: Send + Sync {
    /// Corrects a charge to `actual` units. The charge is one of this layer.
    fn settle(&self, limit: &ChargedLimit, charge: Charge, actual: u64) -> Settling;
}

/// The limit and the key of a charge.
#[derive(Clone)]
pub(crate) struct ChargedLimit {
    pub(crate) policy: Policy,
    pub(crate) key: Key,
    /// The rule that was selected for the request; `None` for the limit's own.
    pub(crate) selected: Option<Arc<dyn Any + Send + Sync>>,
}

impl ChargedLimit {
    /// Returns the settlement of a charge to `actual` units; `own` finds the limit's own rule.
    pub(crate) fn settlement<'a, Rule: 'static>(
        &'a self,
        own: impl FnOnce() -> Option<&'a Rule>,
        charge: Charge,
        actual: u64,
    ) -> Option<Settlement<'a, Rule>> {
        let selected = self.selected.as_deref();
        Some(Settlement {
            policy: &self.policy,
            rule: selected.and_then(|rule| rule.downcast_ref()).or_else(own)?,
            key: self.key,
            charge,
            actual,
            is_grant: false,
        })
    }
}

/// The actual cost of a request, counted while the work is done. Made by
/// [`ChargeHandle::usage`](ChargeHandle::usage).
///
/// Clones share the count. The charge is settled to the count when the last clone is dropped: so a
/// stream that is dropped in the middle settles the units that it used.
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use tollgate::{ChargeHandle, Cost, Policy, RateLimitLayer, TokenBucket, store::Local};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
/// let (rule, store) = (TokenBucket::per_minute(1_000), Local::new());
/// let service = ServiceBuilder::new()
///     .layer(
///         RateLimitLayer::new(rule.clone())
///             .store(store.clone())
///             .cost(Cost::new(100).unwrap())
///             .charge_handle(),
///     )
///     .service(service_fn(async |request: Request<()>| {
///         let usage = request.extensions().get::<ChargeHandle>().unwrap().usage().unwrap();
///         for tokens in [3, 4] {
///             usage.add(tokens);
///         }
///         Ok::<_, Infallible>(Response::new(String::new()))
///     }));
///
/// service.oneshot(Request::new(())).await?;
/// let left = store.look(&Policy::default(), &rule, &tollgate::key::Key::GLOBAL).remaining();
/// assert_eq!(left, Some(993));
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "dropped at once, it settles the charge to 0"]
pub struct Usage(Arc<SharedCount>);

struct SharedCount {
    units: AtomicU64,
    handle: ChargeHandle,
}

impl Usage {
    /// Begins to count for a handle. Its charge is settled to the count, unless a clone of the
    /// handle settles it earlier.
    fn new(handle: ChargeHandle) -> Self {
        let units = AtomicU64::new(0);
        Self(Arc::new(SharedCount { units, handle }))
    }

    /// Adds units. Saturates at `u64::MAX`.
    pub fn add(&self, units: u64) {
        // Relaxed: dropping the last clone orders all additions before the settlement.
        let add = |before: u64| Some(before.saturating_add(units));
        let _ = self
            .0
            .units
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Returns the units so far.
    pub fn units(&self) -> u64 {
        self.0.units.load(Ordering::Relaxed)
    }
}

impl Drop for SharedCount {
    fn drop(&mut self) {
        let actual = *self.units.get_mut();
        // Settles in the background: nobody is left to await it. An error if it was settled
        // meanwhile.
        drop(self.handle.settle(actual));
    }
}

impl_debug!(
    Usage,
    |it| policy = it.0.handle.policy(),
    units = it.units()
);
