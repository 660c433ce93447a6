//! The answers to requests that can never pass.

use http::StatusCode;

/// The code of gRPC for a call that [can never pass](super::Refusal::is_oversized).
///
/// # Examples
///
/// ```
/// use tollgate::respond::{Grpc, OversizedCode};
///
/// let respond = Grpc::new().oversized_code(OversizedCode::FailedPrecondition);
/// # let _ = respond;
/// assert_eq!(OversizedCode::default() as u32, 3);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OversizedCode {
    /// 3 `INVALID_ARGUMENT`: the call is at fault, whatever the state of the server. The default; no client retries it.
    #[default]
    InvalidArgument = 3,
    /// 8 `RESOURCE_EXHAUSTED`, as for a call that may pass later. Some clients retry it at once.
    ResourceExhausted = 8,
    /// 9 `FAILED_PRECONDITION`: not before the server was changed. No client retries it.
    FailedPrecondition = 9,
    /// 11 `OUT_OF_RANGE`. Exporters of OpenTelemetry retry it.
    OutOfRange = 11,
}

/// The answers to requests that can never pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Oversized {
    pub(super) status: StatusCode,
    pub(super) code: OversizedCode,
}

impl Default for Oversized {
    fn default() -> Self {
        Self {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            code: OversizedCode::default(),
        }
    }
}
