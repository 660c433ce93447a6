//! What is remembered or forgotten when an answer comes.

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
    memory::{Memory, Place},
    refusal::Refusal,
};
use crate::{
    decision::Cost,
    key::Key,
    policy::Policy,
    store::Decisions,
    time::{Clock, SystemClock},
};

/// What is needed to remember the answer to one ask.
pub(super) struct Note<Rule, C> {
    pub(super) memory: Arc<Memory<Rule>>,
    pub(super) place: Place,
    pub(super) asked: (Policy, Key, Rule),
    pub(super) cost: Cost,
    pub(super) forever_for: Duration,
    pub(super) clock: C,
}

impl<Rule, C: Clock> Note<Rule, C> {
    pub(super) fn take<E>(self, answer: &Result<Decisions, E>) {
        let Ok(decisions) = answer else {
            return;
        };
        let [decision] = decisions.as_slice() else {
            return;
        };
        if decision.is_admitted() {
            return self.memory.passed(self.place);
        }
        let now = self.clock.now();
        // From when it was heard: who was told to wait began then, too.
        if let Some(refusal) = Refusal::heard(self.cost, decision, now, self.forever_for) {
            self.memory.keep(self.place, self.asked, refusal, now);
        }
    }
}

/// Forgets keys, when it is dropped at the latest.
pub(super) struct Forget<Rule> {
    memory: Arc<Memory<Rule>>,
    hashes: SmallVec<[u64; 1]>,
}

impl<Rule> Forget<Rule> {
    pub(super) fn new(memory: &Arc<Memory<Rule>>, hashes: impl IntoIterator<Item = u64>) -> Self {
        Self {
            memory: Arc::clone(memory),
            hashes: hashes.into_iter().collect(),
        }
    }

    fn now(&mut self) {
        for hash in self.hashes.drain(..) {
            self.memory.forget(hash);
        }
    }
}

impl<Rule> Drop for Forget<Rule> {
    fn drop(&mut self) {
        self.now();
    }
}

pin_project! {
    /// The future of an answer that is [remembered](super::RememberRefusals) if it refuses.
    #[must_use = "futures do nothing unless polled"]
    pub struct RememberFuture<F, Rule, C = SystemClock> {
        #[pin]
        answer: F,
        note: Option<Note<Rule, C>>,
    }
}

impl<F, Rule, C> RememberFuture<F, Rule, C> {
    pub(super) fn new(answer: F, note: Option<Note<Rule, C>>) -> Self {
        Self { answer, note }
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
        if let Some(note) = this.note.take() {
            note.take(&answer);
        }
        Poll::Ready(answer)
    }
}

pin_project! {
    /// The future of a `settle` or `reset` after which a [remembered](super::RememberRefusals) refusal is forgotten, also
    /// when it is dropped.
    #[must_use = "futures do nothing unless polled"]
    pub struct ForgetFuture<F, Rule> {
        #[pin]
        done: F,
        forget: Forget<Rule>,
    }
}

impl<F, Rule> ForgetFuture<F, Rule> {
    pub(super) fn new(done: F, forget: Forget<Rule>) -> Self {
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
        this.forget.now();
        Poll::Ready(done)
    }
}
