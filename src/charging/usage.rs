//! A cost that is counted while the work is done.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::ChargeHandle;

/// The actual cost of a request, counted while the work is done. Made by
/// [`ChargeHandle::usage`](super::ChargeHandle::usage).
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
    /// Its charge is taken.
    handle: ChargeHandle,
}

impl Usage {
    /// Begins to count for a handle whose charge was taken.
    pub(super) fn new(handle: ChargeHandle) -> Self {
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
        // Settles in the background: nobody is left to await it.
        drop(self.handle.settle_taken(actual));
    }
}

impl fmt::Debug for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Usage")
            .field("policy", self.0.handle.policy())
            .field("units", &self.units())
            .finish_non_exhaustive()
    }
}
