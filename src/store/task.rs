//! Work that goes on also when nobody waits for it.

use std::future::Future;

use tokio::runtime::Handle;

use super::{BoxFuture, Check, Error};

/// The runtime of the caller.
///
/// # Errors
///
/// When there is none: a mistake of the program, not of the server.
pub(super) fn runtime() -> Result<Handle, Error> {
    Handle::try_current().map_err(|error| {
        Error::unsupported(format!(
            "{error}: expected the store to be asked within a runtime of tokio; ask it from a task"
        ))
    })
}

/// Runs to its end on the runtime, whoever drops what is returned.
pub(super) fn spawn_detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Check<BoxFuture<Result<T, Error>>> {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return Check::Ready(Err(error)),
    };
    let task = runtime.spawn(work);
    Check::Pending(Box::pin(async move {
        task.await.unwrap_or_else(|_| Err(gone()))
    }))
}

/// What is told to who waited for a task that is no more.
pub(super) fn gone() -> Error {
    Error::unavailable(
        "the runtime that asked the store is shut down: expected it to outlive the call; keep it until the last answer",
    )
}
