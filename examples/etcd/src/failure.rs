//! Converts errors of the etcd client into store errors.

use tollgate::store::StoreError;
use tonic::{Code, Status};

/// Classifies an error. Wrappers such as a circuit breaker or a fallback act on its kind.
pub(crate) fn store_error(error: etcd_client::Error) -> StoreError {
    use etcd_client::Error::{GRpcStatus, IoError, TransportError};
    match &error {
        GRpcStatus(status) => match status.code() {
            Code::DeadlineExceeded => StoreError::timeout(),
            // No server, a cluster without a leader, or a connection that closed during the call.
            Code::Unavailable | Code::Cancelled => StoreError::unavailable(error),
            _ if is_of_the_connection(status) => StoreError::unavailable(error),
            // The value of this key exceeds the request size. The server itself works.
            _ if is_too_large(status) => StoreError::unsupported(error),
            // Only writes fail for that: the server still answers reads.
            _ if is_full(status) => StoreError::unwritten(error),
            // For example a user without a permission.
            _ => StoreError::other(error),
        },
        IoError(_) | TransportError(_) => StoreError::unavailable(error),
        _ => StoreError::other(error),
    }
}

/// Returns `true` if the lease of a write does not exist.
pub(crate) fn is_of_the_lease(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.code() == Code::NotFound)
}

/// Returns `true` if a request was too large for etcd or for its gRPC server.
fn is_too_large(status: &Status) -> bool {
    ["request is too large", "larger than max"]
        .iter()
        .any(|words| status.message().contains(words))
}

/// Returns `true` if the database has no space left, which an operator must grant.
fn is_full(status: &Status) -> bool {
    status.message().contains("database space exceeded")
}

/// Returns `true` if the client made the status itself, because the server sent none.
fn is_of_the_connection(status: &Status) -> bool {
    // The latter without a connection, as after the end of the runtime that drove it.
    std::error::Error::source(status).is_some()
        || status.message().starts_with("Service was not ready")
}
