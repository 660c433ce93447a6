//! What all calls share is made once, by whoever finds it missing.

use std::{
    future::Future,
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{sync::Mutex, task::JoinError};

use super::{
    Error,
    task::{gone, runtime},
};

/// Attempts to make something that can be lost, such as a connection: one at a time.
#[derive(Default)]
pub(super) struct Attempts {
    /// Held while one is under way; why the last one failed.
    turn: Arc<Mutex<Option<Error>>>,
    /// How many have failed.
    failures: Arc<AtomicU64>,
}

impl Attempts {
    /// What is there by the time that no attempt is under way, or comes of this one.
    ///
    /// That is a task of its own: a call may be given up sooner than a connection is made, and so may the next one.
    ///
    /// # Errors
    ///
    /// Why it failed, or the one that was waited for: who waited has tried as well, and a thousand callers do not wait
    /// for a thousand attempts in a row.
    pub(super) async fn get_or_init<T: Send + 'static>(
        &self,
        there: impl Fn() -> Option<T>,
        attempt: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let runtime = runtime()?;
        let before = self.failures.load(Ordering::Acquire);
        let mut last = Arc::clone(&self.turn).lock_owned().await;
        if let Some(there) = there() {
            return Ok(there);
        }
        if let Some(failure) = &*last
            && self.failures.load(Ordering::Acquire) != before
        {
            return Err(failure.again());
        }
        let failures = Arc::clone(&self.failures);
        let making = runtime.spawn(async move {
            let made = attempt.await;
            if let Err(error) = &made {
                *last = Some(error.again());
                failures.fetch_add(1, Ordering::Release);
            }
            made
        });
        match making.await.map_err(JoinError::try_into_panic) {
            Ok(made) => made,
            Err(Ok(panic)) => resume_unwind(panic),
            Err(Err(_)) => Err(gone()),
        }
    }
}
