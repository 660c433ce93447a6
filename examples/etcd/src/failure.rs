//! What went wrong, in the words of tollgate.

use tollgate::store::Error;
use tonic::{Code, Status};

/// Wrappers ask an error what it was: a circuit breaker, a fallback.
pub(crate) fn told(error: etcd_client::Error) -> Error {
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

/// Whether the lease of a write is not there.
pub(crate) fn is_of_the_lease(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.code() == Code::NotFound)
}

/// Whether a request was too large: for etcd, or for the gRPC in front of it.
fn is_too_large(status: &Status) -> bool {
    ["request is too large", "larger than max"]
        .iter()
        .any(|words| status.message().contains(words))
}

/// Whether this side made up the status, since none came.
fn is_of_the_connection(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}
