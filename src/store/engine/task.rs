//! Work that continues when its caller drops the future.

use std::future::Future;

use tokio::runtime::Handle;

use crate::store::{BoxFuture, Check, Error};

/// Returns the tokio runtime of the caller.
///
/// # Errors
///
/// When there is none: a mistake in the program, not a failure of the server.
pub(in crate::store) fn runtime() -> Result<Handle, Error> {
    Handle::try_current().map_err(|error| {
        Error::unsupported(format!(
            "{error}: expected a call within a runtime of tokio; call the store from a task"
        ))
    })
}

/// Spawns a task that runs to its end even if the returned future is dropped.
pub(in crate::store) fn spawn_detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Check<BoxFuture<Result<T, Error>>> {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return Check::Ready(Err(error)),
    };
    let task = runtime.spawn(work);
    Check::Pending(Box::pin(async move {
        task.await.unwrap_or_else(|_| Err(runtime_gone()))
    }))
}

/// Returns the error of a call whose runtime shut down before its task had ended.
pub(in crate::store) fn runtime_gone() -> Error {
    Error::unavailable(
        "the tokio runtime of this call has shut down: expected it to outlive the call; shut it down after the last answer",
    )
}
