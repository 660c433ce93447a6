//! Calls that go on when they are dropped.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::runtime::Handle;

use crate::store::{BoxFuture, Decisions, Error};

/// The future of a [`Counters`](super::Counters) store's answer.
///
/// If it spends and is dropped after it was polled, it goes on by itself. So a refused addition is taken back in any case.
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::{CountersFuture, Decisions, Error};
///
/// /// The call goes on when the time is up, and is charged or taken back.
/// async fn within(time: Duration, answer: CountersFuture) -> Result<Decisions, Error> {
///     tokio::time::timeout(time, answer).await.unwrap_or_else(|_| Err(Error::timeout()))
/// }
/// # let _ = within;
/// ```
#[must_use = "futures do nothing unless they are polled"]
pub struct CountersFuture {
    work: Option<BoxFuture<Result<Decisions, Error>>>,
    spends: bool,
    has_begun: bool,
}

impl CountersFuture {
    pub(super) fn new(
        spends: bool,
        work: impl Future<Output = Result<Decisions, Error>> + Send + 'static,
    ) -> Self {
        Self {
            work: Some(Box::pin(work)),
            spends,
            has_begun: false,
        }
    }
}

impl Future for CountersFuture {
    type Output = Result<Decisions, Error>;

    /// # Panics
    ///
    /// When polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Taken out: after a panic of the store there is nothing to go on with.
        let Some(mut work) = self.work.take() else {
            panic!("`CountersFuture` polled after it was ready");
        };
        self.has_begun = true;
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl Drop for CountersFuture {
    fn drop(&mut self) {
        let Some(work) = self.work.take().filter(|_| self.spends && self.has_begun) else {
            return;
        };
        // Without a runtime nothing goes on, as after a crash.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(work);
        }
    }
}

impl fmt::Debug for CountersFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountersFuture").finish_non_exhaustive()
    }
}
