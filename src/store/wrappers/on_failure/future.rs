//! The future that replaces an error by an answer.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use super::{
    counters::{FailureCounters, FailureKind, Policies},
    failure_mode::{FailureMode, unsupported},
};
use crate::store::{Decisions, Error, engine::SettlementGuard};

/// An output that can replace an error.
pub trait Substitute: Sized {
    #[doc(hidden)]
    fn substitute(mode: Option<FailureMode>, count: usize) -> Self;
}

impl Substitute for Decisions {
    fn substitute(mode: Option<FailureMode>, count: usize) -> Self {
        mode.map_or_else(|| unsupported(count), |mode| mode.decisions(count))
    }
}

impl Substitute for () {
    fn substitute(_: Option<FailureMode>, _: usize) -> Self {}
}

/// Counts and logs the error of one call, and returns the answer instead.
pub(super) struct ErrorHandler {
    pub(super) counters: Arc<FailureCounters>,
    pub(super) policies: Policies,
    pub(super) failed: FailureMode,
    pub(super) contended: FailureMode,
    /// Number of asks.
    pub(super) count: usize,
    /// The settlements of a `settle`, which are counted unless it succeeds.
    pub(super) settling: Option<SettlementGuard>,
}

impl ErrorHandler {
    pub(super) fn substitute<V: Substitute>(&self, error: impl Into<Error>) -> V {
        let mode = match self.counters.record(&error.into(), &self.policies) {
            FailureKind::Failed => Some(self.failed),
            FailureKind::Contended => Some(self.contended),
            FailureKind::Unsupported => None,
        };
        V::substitute(mode, self.count)
    }
}

pin_project! {
    /// The future of an [`OnFailure`](super::OnFailure) store.
    #[must_use = "futures do nothing unless polled or awaited"]
    pub struct OnFailureFuture<F> {
        #[pin]
        future: F,
        handler: ErrorHandler,
    }
}

impl<F> OnFailureFuture<F> {
    pub(super) fn new(future: F, handler: ErrorHandler) -> Self {
        Self { future, handler }
    }
}

impl<F> fmt::Debug for OnFailureFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnFailureFuture").finish_non_exhaustive()
    }
}

impl<F, V, E> Future for OnFailureFuture<F>
where
    F: Future<Output = Result<V, E>>,
    V: Substitute,
    E: Into<Error>,
{
    type Output = Result<V, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.future.poll(cx));
        let settling = this.handler.settling.take();
        if result.is_ok() {
            // What comes at once may come from memory, and says nothing of the store.
            this.handler.counters.answered();
            settling.into_iter().for_each(SettlementGuard::all_made);
        }
        Poll::Ready(result.or_else(|error| Ok(this.handler.substitute(error))))
    }
}
