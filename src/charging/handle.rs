//! The charge of a request, in the hands of its handler.
//!
//! A handle is erased from the types of its layer, so that handlers can name it. It points to the
//! layer's settings, which are shared anyway, and finds the limit's rule by policy. So a handle is
//! one allocation, its box in the request's extensions, and one more for a rule that was selected
//! for the request; what the layer keeps until the response is another.

use std::{
    any::Any,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::Usage;
use crate::{
    decision::Charge, error::Error, key::Key, outcome::Taken, policy::Policy, store::BoxFuture,
};

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

    /// Corrects the charge to the `actual` cost in units: less gives back, 0 everything; more is
    /// taken, even into debt.
    ///
    /// A store in memory settles at once. Others settle in the background, whether the result is
    /// awaited or not.
    ///
    /// # Errors
    ///
    /// When the charge was settled before, by this handle or a clone of it, or when the request has
    /// several handles: then select one with [`of`](Self::of).
    pub fn settle(&self, actual: u64) -> Result<Settling, Error> {
        self.take()?;
        Ok(self.settle_taken(actual))
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
        self.take()?;
        Ok(Usage::new(self.clone()))
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

    /// Settles a charge that was taken, and those of candidates.
    pub(super) fn settle_taken(&self, actual: u64) -> Settling {
        for candidate in self.candidates() {
            // In the background: it has no effect on the request.
            drop(candidate.settle_one(actual));
        }
        self.settle_one(actual)
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

    /// Takes the charge, once, and those of candidates.
    fn take(&self) -> Result<(), Error> {
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
        for candidate in self.candidates() {
            candidate.settled.take();
        }
        Ok(())
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
            next: self.next.clone(),
            candidate: self.candidate.clone(),
        }
    }
}

impl fmt::Debug for ChargeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChargeHandle")
            .field("policy", self.policy())
            .field("charged", &self.charged())
            .finish_non_exhaustive()
    }
}

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
