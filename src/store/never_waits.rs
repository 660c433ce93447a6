//! Proof that a future never has to be awaited.

use std::future::Future;

/// The future type of a store that answers at once, alone or within wrappers that add no wait: it has no values.
///
/// [`Check::at_once`](super::Check::at_once) needs it.
///
/// ```
/// use tollgate::{Cost, Decision, Limiter, Policy, TokenBucket};
/// use tollgate::store::{Local, NeverWaits, Store};
///
/// /// A decision without a runtime, for any store that answers at once.
/// fn decide<S: Store<TokenBucket, Error = std::convert::Infallible, Answer: NeverWaits>>(
///     limiter: &Limiter<TokenBucket, S>,
/// ) -> Decision {
///     limiter.check("alice", Cost::ONE).at_once()
/// }
///
/// let limiter = Limiter::new(Policy::new("jobs"), TokenBucket::per_second(10), Local::new());
/// assert!(decide(&limiter).is_admitted());
/// ```
#[diagnostic::on_unimplemented(
    message = "this store does not always answer at once",
    note = "`.await` the answer instead; `Local` answers at once, and so does `Blocks` around it"
)]
pub trait NeverWaits: Future {
    /// Converts the future, of which there is none, into its output.
    fn at_once(self) -> Self::Output;
}
