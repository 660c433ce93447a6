//! The futures that store or remove a refusal when an answer arrives.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use smallvec::SmallVec;

use super::{
    cache::{Lookup, RefusalCache},
    refusal::CachedRefusal,
};
use crate::{
    decision::{Cost, Decision},
    key::Key,
    policy::Policy,
    store::Decisions,
    time::{Clock, SystemClock},
};

/// One ask in flight, owned, so that its refusal can be stored.
pub(super) struct PendingAsk<Rule, C> {
    pub(super) cache: Arc<RefusalCache<Rule>>,
    pub(super) lookup: Lookup,
    pub(super) asked: (Policy, Key, Rule),
    pub(super) cost: Cost,
    pub(super) forever_for: Duration,
    pub(super) clock: C,
    /// A refusal that still holds, and that the store was only asked about because more may follow from it.
    pub(super) kept: Option<Box<Decision>>,
}

impl<Rule, C: Clock> PendingAsk<Rule, C> {
    /// Updates the cache with the answer, which is that of the call, unless a refusal still holds and the store has not decided.
    pub(super) fn finish<E>(mut self, answer: Result<Decisions, E>) -> Result<Decisions, E> {
        let kept = self.kept.take();
        let decided = answer.as_ref().ok().and_then(Decisions::only);
        match kept.filter(|_| decided.is_none_or(|decision| decision.is_undecided())) {
            Some(kept) => Ok((*kept).into()),
            None => {
                self.record(&answer);
                answer
            }
        }
    }

    fn record<E>(self, answer: &Result<Decisions, E>) {
        let Ok(decisions) = answer else {
            return;
        };
        let [decision] = decisions.as_slice() else {
            return;
        };
        if decision.is_admitted() {
            return self.cache.admitted(self.lookup);
        }
        // The wait begins now, as it does for the client.
        let now = self.clock.now();
        if let Some(refusal) = CachedRefusal::new(self.cost, decision, now, self.forever_for) {
            self.cache.insert(self.lookup, self.asked, refusal, now);
        }
    }
}

/// Removes the entries of some keys from the cache, at the latest when it is dropped.
pub(super) struct ForgetOnDrop<Rule> {
    cache: Arc<RefusalCache<Rule>>,
    hashes: SmallVec<[u64; 1]>,
}

impl<Rule> ForgetOnDrop<Rule> {
    pub(super) fn new(
        cache: &Arc<RefusalCache<Rule>>,
        hashes: impl IntoIterator<Item = u64>,
    ) -> Self {
        Self {
            cache: Arc::clone(cache),
            hashes: hashes.into_iter().collect(),
        }
    }

    fn forget(&mut self) {
        for hash in self.hashes.drain(..) {
            self.cache.forget(hash);
        }
    }
}

impl<Rule> Drop for ForgetOnDrop<Rule> {
    fn drop(&mut self) {
        self.forget();
    }
}

pin_project! {
    /// The future of a decision of [`RememberRefusals`](super::RememberRefusals).
    #[must_use = "futures do nothing unless polled or awaited"]
    pub struct RememberFuture<F, Rule, C = SystemClock> {
        #[pin]
        answer: F,
        ask: Option<PendingAsk<Rule, C>>,
    }
}

impl<F, Rule, C> RememberFuture<F, Rule, C> {
    pub(super) fn new(answer: F, ask: Option<PendingAsk<Rule, C>>) -> Self {
        Self { answer, ask }
    }
}

impl<F, Rule, C> fmt::Debug for RememberFuture<F, Rule, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RememberFuture").finish_non_exhaustive()
    }
}

impl<F, E, Rule, C: Clock> Future for RememberFuture<F, Rule, C>
where
    F: Future<Output = Result<Decisions, E>>,
{
    type Output = Result<Decisions, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.answer.poll(cx));
        Poll::Ready(match this.ask.take() {
            Some(ask) => ask.finish(answer),
            None => answer,
        })
    }
}

pin_project! {
    /// The future of `settle` and `reset` of [`RememberRefusals`](super::RememberRefusals). It removes the refusals of the
    /// keys, even when it is dropped.
    #[must_use = "futures do nothing unless polled or awaited"]
    pub struct ForgetFuture<F, Rule> {
        #[pin]
        done: F,
        forget: ForgetOnDrop<Rule>,
    }
}

impl<F, Rule> ForgetFuture<F, Rule> {
    pub(super) fn new(done: F, forget: ForgetOnDrop<Rule>) -> Self {
        Self { done, forget }
    }
}

impl<F, Rule> fmt::Debug for ForgetFuture<F, Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForgetFuture").finish_non_exhaustive()
    }
}

impl<F: Future, Rule> Future for ForgetFuture<F, Rule> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let done = ready!(this.done.poll(cx));
        this.forget.forget();
        Poll::Ready(done)
    }
}
