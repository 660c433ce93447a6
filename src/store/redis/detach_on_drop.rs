//! Queries that outlive the call that started them.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::runtime::Handle;

use crate::store::BoxFuture;

/// A query that continues as a task of its own when it is dropped after its first poll.
///
/// A deadline drops a call long before the response timeout of its connection. If the query ended with the call, a dead connection
/// would go unnoticed as long as calls do not overlap. A query that is awaited to its end costs no task.
pub(super) struct DetachOnDrop<T: Send + 'static> {
    query: Option<BoxFuture<T>>,
    /// The runtime of the first poll; `None` before it, as nothing was sent then.
    runtime: Option<Handle>,
}

pub(super) fn detach_on_drop<T: Send + 'static>(
    query: impl Future<Output = T> + Send + 'static,
) -> DetachOnDrop<T> {
    DetachOnDrop {
        query: Some(Box::pin(query)),
        runtime: None,
    }
}

impl<T: Send + 'static> Future for DetachOnDrop<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        let Some(query) = &mut this.query else {
            // Polled after it was ready.
            return Poll::Pending;
        };
        if this.runtime.is_none() {
            this.runtime = Handle::try_current().ok();
        }
        let polled = query.as_mut().poll(cx);
        if polled.is_ready() {
            this.query = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for DetachOnDrop<T> {
    fn drop(&mut self) {
        if let (Some(query), Some(runtime)) = (self.query.take(), self.runtime.take()) {
            // A runtime that has shut down drops it at once.
            drop(runtime.spawn(query));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering::SeqCst},
        },
        task::Waker,
        time::Duration,
    };

    use super::*;

    /// Returns a query that takes a second, and a flag that it sets at its end.
    fn slow() -> (DetachOnDrop<()>, Arc<AtomicBool>) {
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let query = detach_on_drop(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            done.store(true, SeqCst);
        });
        (query, is_done)
    }

    #[tokio::test(start_paused = true)]
    async fn a_query_that_was_polled_runs_to_its_end() {
        for (polls, ends) in [(0, false), (1, true)] {
            let (mut query, is_done) = slow();
            for _ in 0..polls {
                let mut cx = Context::from_waker(Waker::noop());
                assert!(Pin::new(&mut query).poll(&mut cx).is_pending());
            }
            // An awaited query costs no task.
            let tasks = || Handle::current().metrics().num_alive_tasks();
            assert_eq!(tasks(), 0);
            drop(query);
            assert_eq!(tasks(), usize::from(ends));
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(is_done.load(SeqCst), ends, "{polls}");
        }
        let (query, is_done) = slow();
        query.await;
        assert!(is_done.load(SeqCst));
    }

    #[test]
    fn a_drop_outside_of_the_runtime_or_after_it_is_harmless() {
        let runtime = || tokio::runtime::Builder::new_current_thread().build();
        for is_shut_down in [false, true] {
            let runtime = runtime().unwrap();
            let mut query = detach_on_drop(pending::<()>());
            runtime.block_on(async {
                let mut cx = Context::from_waker(Waker::noop());
                assert!(Pin::new(&mut query).poll(&mut cx).is_pending());
            });
            if is_shut_down {
                drop(runtime);
            }
            drop(query);
        }
        let mut never = detach_on_drop(pending::<()>());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut never).poll(&mut cx).is_pending());
    }
}
