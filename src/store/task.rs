//! Work that goes on also when nobody waits for it.

use std::future::Future;

use super::{BoxFuture, Check, Error};

/// Runs to its end on the runtime, whoever drops what is returned.
pub(super) fn on_its_own<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Check<BoxFuture<Result<T, Error>>> {
    let runtime = match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime,
        Err(error) => return Check::Ready(Err(no_runtime(&error))),
    };
    let task = runtime.spawn(work);
    Check::Pending(Box::pin(async move {
        task.await.unwrap_or_else(|_| Err(gone()))
    }))
}

/// The error of a call outside of a runtime.
pub(super) fn no_runtime(error: &tokio::runtime::TryCurrentError) -> Error {
    Error::other(format!(
        "{error}: expected the store to be asked within a runtime of tokio; ask it from a task"
    ))
}

/// What is told to who waited for a task that is no more.
pub(super) fn gone() -> Error {
    Error::unavailable(
        "the runtime that asked the store is shut down: expected it to outlive the call; keep it until the last answer",
    )
}
