//! Work that is in flight: tasks that outlive their callers, attempts that callers share,
//! operations at the same time, and the answer to several of them.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
};
#[cfg(any(feature = "redis", feature = "memcached"))]
use std::{
    panic::resume_unwind,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use tokio::runtime::Handle;
#[cfg(any(feature = "redis", feature = "memcached"))]
use tokio::{
    sync::watch,
    task::{JoinError, JoinHandle},
    time::timeout,
};

use crate::store::{BoxFuture, Check, Pulled, StoreError};
#[cfg(any(feature = "redis", feature = "memcached"))]
use crate::{
    locks::lock,
    time::{Clock, LeaseClock, Timestamp},
};

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

/// Work that goes on as a task of its own when it is dropped after its first poll. If it is awaited
/// to its end, it costs no task.
#[must_use = "futures do nothing unless they are polled"]
pub struct DetachOnDrop<T: Send + 'static> {
    work: Option<BoxFuture<T>>,
    is_attached: bool,
    /// The runtime of the first poll; `None` before it, as nothing was done then, unless the work
    /// has [begun](Self::begun).
    runtime: Option<Handle>,
}

/// Returns work that outlives the call that began it.
pub(in crate::store) fn detach_on_drop<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> DetachOnDrop<T> {
    DetachOnDrop {
        work: Some(Box::pin(work)),
        is_attached: false,
        runtime: None,
    }
}

impl<T: Send + 'static> DetachOnDrop<T> {
    /// Lets the work end with its call after all: it changes nothing.
    pub(in crate::store) fn attached(mut self) -> Self {
        self.is_attached = true;
        self
    }

    /// Lets the work go on also if it is dropped before its first poll: a part of it was done.
    pub(in crate::store) fn begun(mut self) -> Self {
        self.runtime = Handle::try_current().ok();
        self
    }
}

impl<T: Send + 'static> Future for DetachOnDrop<T> {
    type Output = T;

    /// # Panics
    ///
    /// When polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out: after a panic there is nothing to go on with.
        let Some(mut work) = self.work.take() else {
            panic!("`DetachOnDrop` polled after it was ready");
        };
        if !self.is_attached && self.runtime.is_none() {
            self.runtime = Handle::try_current().ok();
        }
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for DetachOnDrop<T> {
    fn drop(&mut self) {
        if let (Some(work), Some(runtime)) = (self.work.take(), self.runtime.take()) {
            // A runtime that has shut down drops it at once.
            drop(runtime.spawn(work));
        }
    }
}

impl_debug!([T: Send + 'static] DetachOnDrop<T>);

/// Returns the error of a call whose runtime shut down before its task had ended.
pub(crate) fn runtime_gone() -> StoreError {
    StoreError::unavailable(
        "the tokio runtime of this call has shut down: expected it to outlive the call; shut it down after the last answer",
    )
}

/// Runs one attempt at a time to create a value that can be lost again.
#[cfg(any(feature = "redis", feature = "memcached"))]
pub(in crate::store) struct SingleFlight {
    last: Mutex<Attempt>,
    /// The age of an attempt from which callers begin another one.
    max_age: Duration,
}

/// The last attempt.
#[cfg(any(feature = "redis", feature = "memcached"))]
#[derive(Default)]
struct Attempt {
    begun: Timestamp,
    /// Its error, for callers that wait for it. Belongs to its task, and ends with it.
    error: Weak<watch::Sender<Option<StoreError>>>,
}

#[cfg(any(feature = "redis", feature = "memcached"))]
impl SingleFlight {
    /// Attempts to create a value of a server, whose answers may take `response_timeout` each.
    ///
    /// An attempt waits for a few answers. One that is older is on a runtime that nobody drives.
    pub(in crate::store) fn new(response_timeout: Duration) -> Self {
        Self {
            last: Mutex::default(),
            max_age: response_timeout.saturating_mul(6),
        }
    }

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
        let attempt = loop {
            let mut failed = {
                let mut last = lock(&self.last);
                if let Some(value) = existing() {
                    return Ok(value);
                }
                let age = LeaseClock.now().saturating_since(last.begun);
                let in_flight = last.error.upgrade();
                let Some(error) = in_flight.filter(|_| age < self.max_age) else {
                    break last.begin(&runtime, create);
                };
                error.subscribe()
            };
            // Without an error: after a success, when the runtime of the attempt shuts down, and if
            // the attempt has become too old.
            if let Ok(Ok(error)) = timeout(self.max_age, failed.wait_for(Option::is_some)).await
                && let Some(error) = &*error
            {
                return Err(error.duplicate());
            }
        };
        match attempt.await.map_err(JoinError::try_into_panic) {
            Ok(created) => created,
            Err(Ok(panic)) => resume_unwind(panic),
            Err(Err(_)) => Err(runtime_gone()),
        }
    }
}

#[cfg(any(feature = "redis", feature = "memcached"))]
impl Attempt {
    /// Begins another attempt in its place.
    fn begin<T: Send + 'static>(
        &mut self,
        runtime: &Handle,
        create: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> JoinHandle<Result<T, StoreError>> {
        let error = Arc::new(watch::Sender::new(None));
        *self = Self {
            begun: LeaseClock.now(),
            error: Arc::downgrade(&error),
        };
        runtime.spawn(async move {
            let created = create.await;
            if let Err(failure) = &created {
                error.send_replace(Some(failure.duplicate()));
            }
            created
        })
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
        future::pending,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering::SeqCst},
        },
        task::Waker,
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

    /// Returns work that takes a second, and a flag that it sets at its end.
    fn slow() -> (DetachOnDrop<()>, Arc<AtomicBool>) {
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let work = detach_on_drop(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            done.store(true, SeqCst);
        });
        (work, is_done)
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_was_polled_runs_to_its_end() {
        for (polls, is_attached, ends) in [(0, false, false), (1, false, true), (1, true, false)] {
            let (mut work, is_done) = slow();
            work.is_attached = is_attached;
            for _ in 0..polls {
                let mut cx = Context::from_waker(Waker::noop());
                assert!(Pin::new(&mut work).poll(&mut cx).is_pending());
            }
            // Awaited work costs no task.
            let tasks = || Handle::current().metrics().num_alive_tasks();
            assert_eq!(tasks(), 0);
            drop(work);
            assert_eq!(tasks(), usize::from(ends));
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(is_done.load(SeqCst), ends, "{polls} {is_attached}");
        }
        let (work, is_done) = slow();
        work.await;
        assert!(is_done.load(SeqCst));
    }

    #[test]
    fn a_drop_outside_of_the_runtime_or_after_it_is_harmless() {
        let runtime = || tokio::runtime::Builder::new_current_thread().build();
        for is_shut_down in [false, true] {
            let runtime = runtime().unwrap();
            let mut work = detach_on_drop(pending::<()>());
            runtime.block_on(async {
                let mut cx = Context::from_waker(Waker::noop());
                assert!(Pin::new(&mut work).poll(&mut cx).is_pending());
            });
            if is_shut_down {
                drop(runtime);
            }
            drop(work);
        }
        let mut never = detach_on_drop(pending::<()>());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut never).poll(&mut cx).is_pending());
    }
}
