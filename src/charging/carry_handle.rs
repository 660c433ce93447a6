//! Requests that carry a charge handle to their handler.

use super::ChargeHandle;

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
