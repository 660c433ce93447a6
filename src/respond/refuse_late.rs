//! The trait of responders that refuse after the response.

use super::Refusal;

/// Refuses a request whose handler has responded already.
///
/// A limit with [`charge_after`](crate::Limit::charge_after) charges after the response. If it refuses the charge, the client must not see the
/// response. [`Http`](super::Http), [`Grpc`](super::Grpc) and [`AsError`](super::AsError) implement it; implement it for a responder
/// of your own to use it with such limits.
///
/// ```
/// use tollgate::respond::{Refusal, RefuseLate};
///
/// /// A responder of a service of lines.
/// struct Lines;
///
/// impl<E> RefuseLate<String, E> for Lines {
///     fn refuse_late(&self, _: String, refusal: Refusal) -> Result<String, E> {
///         Ok(format!("BUSY: {refusal}"))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the responder `{Self}` cannot refuse a request after its response",
    note = "`.charge_after(…)` needs that: use the responder `Http`, `Grpc` or `AsError`, implement `respond::RefuseLate` for your own, or \
            take `.charge_if(…)` instead, which charges before the request"
)]
pub trait RefuseLate<Res, Err> {
    /// Replaces a response by a refusal.
    ///
    /// # Errors
    ///
    /// Returns the service's error if that is how the service reports a refusal.
    fn refuse_late(&self, res: Res, refusal: Refusal) -> Result<Res, Err>;
}
