//! Work that is in flight: tasks that outlive their callers, attempts that callers share,
//! operations at the same time, and the answer to several of them.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};
#[cfg(any(feature = "redis", feature = "memcached"))]
use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::runtime::Handle;
#[cfg(any(feature = "redis", feature = "memcached"))]
use tokio::{sync::Mutex, task::JoinError};

use crate::store::{BoxFuture, Check, Pulled, StoreError};

/// Returns the tokio runtime of the caller.
///
/// # Errors
///
/// When there is none: a mistake in the program, not a failure of the server.
pub(crate) fn runtime() -> Result<Handle, StoreError> {
    Handle::try_current().map_err(|error| {
        StoreError::unsupported(format!(
            "{error}: expected a call within a runtime of tokio; call the store from a task"
        ))
    })
}

/// Spawns a task that runs to its end even if the returned future is dropped.
pub(in crate::store) fn spawn_detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Check<BoxFuture<Result<T, StoreError>>> {
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
pub(crate) fn runtime_gone() -> StoreError {
    StoreError::unavailable(
        "the tokio runtime of this call has shut down: expected it to outlive the call; shut it down after the last answer",
    )
}

/// Runs one attempt at a time to create a value that can be lost again.
#[cfg(any(feature = "redis", feature = "memcached"))]
#[derive(Default)]
pub(in crate::store) struct SingleFlight {
    /// Held while an attempt is in flight; contains the error of the last attempt that failed.
    last_error: Arc<Mutex<Option<StoreError>>>,
    /// Number of failed attempts.
    failures: Arc<AtomicU64>,
}

#[cfg(any(feature = "redis", feature = "memcached"))]
impl SingleFlight {
    /// Returns the existing value, or creates it; concurrent callers share one attempt.
    ///
    /// The attempt is a task of its own: it continues when the call that started it is dropped.
    ///
    /// # Errors
    ///
    /// The error of the attempt. Callers that waited for a failed attempt get its error too and
    /// start no attempt of their own, so a thousand callers do not wait for a thousand attempts in
    /// a row.
    pub(in crate::store) async fn get_or_try_init<T: Send + 'static>(
        &self,
        existing: impl Fn() -> Option<T>,
        create: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
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

/// Runs futures concurrently, up to `most` at a time, and returns their outputs in order. They
/// start in order, too.
///
/// For operations on a connection that pipelines those of concurrent callers. No task is spawned,
/// so all of them end with the returned future.
pub(in crate::store) async fn concurrently<F: Future>(
    most: usize,
    futures: Vec<F>,
) -> Vec<F::Output> {
    let mut waiting = futures.into_iter().enumerate();
    let mut in_flight: Vec<(usize, Pin<Box<F>>)> = Vec::new();
    let mut outputs: Vec<Option<F::Output>> = Vec::new();
    poll_fn(|cx| {
        let mut is_pending = |(n, future): &mut (usize, Pin<Box<F>>)| match future.as_mut().poll(cx)
        {
            Poll::Ready(output) => {
                let missing = (*n + 1).saturating_sub(outputs.len());
                outputs.extend((0..missing).map(|_| None));
                outputs[*n] = Some(output);
                false
            }
            Poll::Pending => true,
        };
        in_flight.retain_mut(&mut is_pending);
        while in_flight.len() < most.max(1)
            && let Some((n, future)) = waiting.next()
        {
            let mut begun = (n, Box::pin(future));
            if is_pending(&mut begun) {
                in_flight.push(begun);
            }
        }
        match in_flight.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

/// Returns the results of several deltas, or one error if the server failed for all deltas that it
/// was sent.
///
/// # Errors
///
/// The first failure of the server, if it answered no delta.
pub(in crate::store) fn each_delta<State>(
    each: Vec<Result<Pulled<State>, StoreError>>,
) -> Result<Vec<Result<Pulled<State>, StoreError>>, StoreError> {
    let is_answered = |one: &Result<_, StoreError>| match one {
        Ok(_) => true,
        Err(error) => error.is_contended(),
    };
    if each.iter().any(is_answered) {
        return Ok(each);
    }
    let failures = each.iter().filter_map(|one| one.as_ref().err());
    match failures.into_iter().find(|error| !error.is_unsupported()) {
        Some(failure) => Err(failure.duplicate()),
        None => Ok(each),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::{Cell, RefCell},
        time::Duration,
    };

    use super::*;
    use crate::time::Timestamp;

    #[tokio::test(start_paused = true)]
    async fn so_many_are_in_flight_and_outputs_keep_their_order() {
        let (in_flight, greatest) = (Cell::new(0), Cell::new(0));
        let begun = RefCell::new(Vec::new());
        let operation = async |n: u64| {
            begun.borrow_mut().push(n);
            in_flight.set(in_flight.get() + 1);
            greatest.set(greatest.get().max(in_flight.get()));
            // Of each three one is slow, and one is ready at once.
            tokio::time::sleep(Duration::from_millis(n % 3 * 10)).await;
            in_flight.set(in_flight.get() - 1);
            n * n
        };
        let outputs = concurrently(4, (0..30).map(operation).collect()).await;
        assert_eq!(outputs, (0..30).map(|n| n * n).collect::<Vec<_>>());
        assert_eq!(*begun.borrow(), (0..30).collect::<Vec<_>>());
        assert_eq!(greatest.get(), 4);
        let none = concurrently(4, (0..0).map(operation).collect()).await;
        assert!(none.is_empty());
        assert_eq!(
            concurrently(0, (0..2).map(operation).collect()).await,
            [0, 1]
        );
    }

    #[test]
    fn a_server_that_answers_no_delta_fails_the_call() {
        let at = Timestamp::default();
        let pulled = || {
            Ok(Pulled {
                at,
                state: None::<()>,
            })
        };
        let silent = || Err(StoreError::timeout());
        let unfit = || Err(StoreError::unsupported("a rule that does not fit"));
        for (each, fails) in [
            (vec![], false),
            (vec![pulled()], false),
            (vec![silent()], true),
            (vec![unfit()], false),
            (vec![unfit(), silent()], true),
            (vec![silent(), pulled()], false),
            (vec![silent(), Err(StoreError::contended())], false),
        ] {
            let (case, count) = (format!("{each:?}"), each.len());
            match each_delta(each) {
                Ok(each) => assert!(!fails && each.len() == count, "{case}"),
                Err(error) => assert!(fails && error.is_timeout(), "{case}"),
            }
        }
    }
}
