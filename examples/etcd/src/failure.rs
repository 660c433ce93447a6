//! Errors of the client of etcd as errors of a store.

use tollgate::store::Error;
use tonic::{Code, Status};

/// Classifies an error. Wrappers, such as a circuit breaker and a fallback, decide by its kind.
pub(crate) fn store_error(error: etcd_client::Error) -> Error {
    use etcd_client::Error::{GRpcStatus, IoError, TransportError};
    match &error {
        GRpcStatus(status) => match status.code() {
            Code::DeadlineExceeded => Error::timeout(),
            // Nobody there; a cluster without a leader; a connection that ended under way.
            Code::Unavailable | Code::Cancelled => Error::unavailable(error),
            _ if is_of_the_connection(status) => Error::unavailable(error),
            // Of one key: its value is beyond the request size. The server is well.
            _ if is_too_large(status) => Error::unsupported(error),
            // Among them: a database that is full, a user without the right to write.
            _ => Error::other(error),
        },
        IoError(_) | TransportError(_) => Error::unavailable(error),
        _ => Error::other(error),
    }
}

/// Returns `true` if the lease of a write does not exist.
pub(crate) fn is_of_the_lease(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.code() == Code::NotFound)
}

/// Returns `true` if a request was too large: for etcd, or for the gRPC in front of it.
fn is_too_large(status: &Status) -> bool {
    ["request is too large", "larger than max"]
        .iter()
        .any(|words| status.message().contains(words))
}

/// Returns `true` if the client made up the status because none came.
fn is_of_the_connection(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}
