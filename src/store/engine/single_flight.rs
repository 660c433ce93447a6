//! Concurrent callers share one attempt to create something, such as a connection.

use std::{
    future::Future,
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{sync::Mutex, task::JoinError};

use super::{runtime, runtime_gone};
use crate::store::Error;

/// Runs one attempt at a time to create a value that can be lost again.
#[derive(Default)]
pub(in crate::store) struct SingleFlight {
    /// Held while an attempt is in flight; contains the error of the last attempt that failed.
    last_error: Arc<Mutex<Option<Error>>>,
    /// Number of failed attempts.
    failures: Arc<AtomicU64>,
}

impl SingleFlight {
    /// Returns the existing value, or creates it; concurrent callers share one attempt.
    ///
    /// The attempt is a task of its own: it continues when the call that started it is dropped.
    ///
    /// # Errors
    ///
    /// The error of the attempt. Callers that waited for a failed attempt get its error too and start no attempt of their own, so a
    /// thousand callers do not wait for a thousand attempts in a row.
    pub(in crate::store) async fn get_or_try_init<T: Send + 'static>(
        &self,
        existing: impl Fn() -> Option<T>,
        create: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let runtime = runtime()?;
        let failures_before = self.failures.load(Ordering::Acquire);
        let mut last_error = Arc::clone(&self.last_error).lock_owned().await;
        if let Some(value) = existing() {
            return Ok(value);
        }
        if let Some(error) = &*last_error
            && self.failures.load(Ordering::Acquire) != failures_before
        {
            return Err(error.duplicate());
        }
        let failures = Arc::clone(&self.failures);
        let attempt = runtime.spawn(async move {
            let created = create.await;
            if let Err(error) = &created {
                *last_error = Some(error.duplicate());
                failures.fetch_add(1, Ordering::Release);
            }
            created
        });
        match attempt.await.map_err(JoinError::try_into_panic) {
            Ok(created) => created,
            Err(Ok(panic)) => resume_unwind(panic),
            Err(Err(_)) => Err(runtime_gone()),
        }
    }
}
