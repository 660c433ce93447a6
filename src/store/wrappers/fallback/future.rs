//! The future of a fallback: the answer of the remote store, or of the local one if that fails.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    ops::ControlFlow,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use super::stores::{Operation, Stores};
use crate::store::{Ask, Check, Decisions, Error, NeverFails, OwnedAsks, Store};

pin_project! {
    /// The future of a decision of a [`Fallback`](super::Fallback).
    #[must_use = "futures do nothing unless polled or awaited"]
    pub struct FallbackFuture<S, L, Rule>
    where
        S: Store<Rule>,
        L: Store<Rule>,
    {
        #[pin]
        remote: Option<S::Answer>,
        #[pin]
        local: Option<L::Answer>,
        operation: Operation,
        asks: OwnedAsks<Rule>,
        stores: Arc<Stores<S, L, Rule>>,
    }
}

impl<S, L, Rule> FallbackFuture<S, L, Rule>
where
    S: Store<Rule, Error: Into<Error>>,
    L: Store<Rule, Error: NeverFails>,
    Rule: Clone,
{
    /// Calls the remote store, and the local one if that fails at once.
    pub(super) fn ask(
        stores: &Arc<Stores<S, L, Rule>>,
        operation: Operation,
        asks: &[Ask<'_, Rule>],
    ) -> Check<Self> {
        let (remote, local) = match operation.run(stores.remote.get_ref(), asks) {
            Check::Ready(Ok(decisions)) => return Check::Ready(Ok(decisions)),
            Check::Ready(Err(error)) => match stores.fall_back(error, operation, asks) {
                ControlFlow::Break(decisions) => return Check::Ready(Ok(decisions)),
                ControlFlow::Continue(answer) => (None, Some(answer)),
            },
            Check::Pending(answer) => (Some(answer), None),
        };
        Check::Pending(Self {
            remote,
            local,
            operation,
            asks: OwnedAsks::new(asks),
            stores: Arc::clone(stores),
        })
    }
}

impl<S, L, Rule> Future for FallbackFuture<S, L, Rule>
where
    S: Store<Rule, Error: Into<Error>>,
    L: Store<Rule, Error: NeverFails>,
{
    type Output = Result<Decisions, Infallible>;

    /// # Panics
    ///
    /// When polled again after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(remote) = this.remote.as_mut().as_pin_mut() {
            let answer = ready!(remote.poll(cx));
            // Dropped now, not when this future is dropped.
            this.remote.set(None);
            let error = match answer {
                Ok(decisions) => {
                    this.stores.remote.answered();
                    return Poll::Ready(Ok(decisions));
                }
                Err(error) => error,
            };
            match this
                .stores
                .fall_back(error, *this.operation, &this.asks.to_vec())
            {
                ControlFlow::Break(decisions) => return Poll::Ready(Ok(decisions)),
                ControlFlow::Continue(answer) => this.local.set(Some(answer)),
            }
        }
        let Some(local) = this.local.as_mut().as_pin_mut() else {
            panic!("`FallbackFuture` polled after it was ready")
        };
        let answer = ready!(local.poll(cx));
        this.local.set(None);
        Poll::Ready(Ok(this.stores.local_decisions(answer)))
    }
}

impl<S: Store<Rule>, L: Store<Rule>, Rule> fmt::Debug for FallbackFuture<S, L, Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallbackFuture").finish_non_exhaustive()
    }
}
