//! The status of a gRPC response.

use http::Response;

use super::headers::GRPC_STATUS;

/// Returns the status code of a gRPC response if it is among the header fields (gRPC over HTTP/2, Trailers-Only).
///
/// So are the errors of unary calls, and those of streams before their first message. A call that succeeds has its status in the trailers, after the
/// body, and so has a stream that fails later: both return `None`, as responses without gRPC do.
///
/// ```
/// use http::Response;
/// use tollgate::{Limit, TokenBucket, respond::grpc_code};
///
/// // Charges calls that failed with `UNAUTHENTICATED`.
/// let limit = Limit::new(TokenBucket::per_hour(3)).charge_after(|response: &Response<()>| grpc_code(response) == Some(16));
///
/// let failed = Response::builder().header("grpc-status", "16").body(()).unwrap();
/// assert_eq!(grpc_code(&failed), Some(16));
/// # let _ = limit;
/// ```
pub fn grpc_code<B>(response: &Response<B>) -> Option<u32> {
    let value = response.headers().get(GRPC_STATUS)?;
    value.to_str().ok()?.parse().ok()
}
