//! The way of a call: to the remote store, and to the local one where that fails.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    ops::ControlFlow,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use smallvec::SmallVec;

use super::Shared;
use crate::{
    decision::Cost,
    key::Key,
    policy::Policy,
    store::{Ask, Check, Decisions, Error, NeverFails, Store, Undecided},
};

/// What is asked of both stores.
#[derive(Clone, Copy)]
pub(super) enum Question {
    Acquire,
    Look,
}

impl Question {
    fn put<Rule, S: Store<Rule>>(self, store: &S, asks: &[Ask<'_, Rule>]) -> Check<S::Answer> {
        match self {
            Self::Acquire => store.acquire(asks),
            Self::Look => store.look(asks),
        }
    }
}

impl<S, L, Rule> Shared<S, L, Rule>
where
    S: Store<Rule, Error: Into<Error>>,
    L: Store<Rule, Error: NeverFails>,
{
    /// Goes on with the local store; but where the remote one only lost its races, or does not support the call, nothing passes
    /// beside it.
    fn fall_back(
        &self,
        error: S::Error,
        question: Question,
        asks: &[Ask<'_, Rule>],
    ) -> ControlFlow<Decisions, L::Answer> {
        let policies = asks.iter().map(Ask::policy);
        if let Some(decisions) = self.remote.note(error, policies, asks.len()) {
            return ControlFlow::Break(decisions);
        }
        let shares = asks.iter().map(|ask| (self.share_of)(ask.rule()));
        let Some(shares) = shares.collect::<Option<SmallVec<[Rule; 1]>>>() else {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
            return ControlFlow::Break(Undecided::Closed.decisions(asks.len()));
        };
        let asks = asks.iter().zip(&shares);
        let asks = asks.map(|(ask, rule)| Ask::new(ask.policy(), rule, *ask.key(), ask.cost()));
        match question.put(&self.local, &asks.collect::<SmallVec<[_; 1]>>()) {
            Check::Ready(answer) => ControlFlow::Break(self.decided(answer)),
            Check::Pending(answer) => ControlFlow::Continue(answer),
        }
    }

    /// What the local store answered.
    fn decided(&self, answer: Result<Decisions, L::Error>) -> Decisions {
        self.decided.fetch_add(1, Ordering::Relaxed);
        answer.unwrap_or_else(NeverFails::never).of_fallback()
    }
}

pin_project! {
    /// The future of a [`FallBackTo`](super::FallBackTo) store's answer.
    #[must_use = "futures do nothing unless polled"]
    pub struct FallBackFuture<S, L, Rule>
    where
        S: Store<Rule>,
        L: Store<Rule>,
    {
        #[pin]
        remote: Option<S::Answer>,
        #[pin]
        local: Option<L::Answer>,
        question: Question,
        asks: SmallVec<[(Policy, Rule, Key, Cost); 1]>,
        shared: Arc<Shared<S, L, Rule>>,
    }
}

impl<S, L, Rule> FallBackFuture<S, L, Rule>
where
    S: Store<Rule, Error: Into<Error>>,
    L: Store<Rule, Error: NeverFails>,
    Rule: Clone,
{
    pub(super) fn ask(
        shared: &Arc<Shared<S, L, Rule>>,
        question: Question,
        asks: &[Ask<'_, Rule>],
    ) -> Check<Self> {
        let (remote, local) = match question.put(shared.remote.store(), asks) {
            Check::Ready(Ok(decisions)) => return Check::Ready(Ok(decisions)),
            Check::Ready(Err(error)) => match shared.fall_back(error, question, asks) {
                ControlFlow::Break(decisions) => return Check::Ready(Ok(decisions)),
                ControlFlow::Continue(answer) => (None, Some(answer)),
            },
            Check::Pending(answer) => (Some(answer), None),
        };
        let own = |ask: &Ask<'_, Rule>| {
            let (policy, rule) = (ask.policy().clone(), ask.rule().clone());
            (policy, rule, *ask.key(), ask.cost())
        };
        Check::Pending(Self {
            remote,
            local,
            question,
            asks: asks.iter().map(own).collect(),
            shared: Arc::clone(shared),
        })
    }
}

impl<S, L, Rule> Future for FallBackFuture<S, L, Rule>
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
            // Its future ends here, not when this one is dropped.
            this.remote.set(None);
            let error = match answer {
                Ok(decisions) => return Poll::Ready(Ok(decisions)),
                Err(error) => error,
            };
            let asks = this.asks.iter();
            let asks = asks.map(|(policy, rule, key, cost)| Ask::new(policy, rule, *key, *cost));
            let asks: SmallVec<[_; 1]> = asks.collect();
            match this.shared.fall_back(error, *this.question, &asks) {
                ControlFlow::Break(decisions) => return Poll::Ready(Ok(decisions)),
                ControlFlow::Continue(answer) => this.local.set(Some(answer)),
            }
        }
        let Some(local) = this.local.as_mut().as_pin_mut() else {
            panic!("`FallBackFuture` polled after it was ready")
        };
        let answer = ready!(local.poll(cx));
        this.local.set(None);
        Poll::Ready(Ok(this.shared.decided(answer)))
    }
}

impl<S: Store<Rule>, L: Store<Rule>, Rule> fmt::Debug for FallBackFuture<S, L, Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallBackFuture").finish_non_exhaustive()
    }
}
