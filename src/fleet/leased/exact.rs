//! A call that asks the store for its own cost alone.
//!
//! It takes the shortest path: the future of the store and a few words, without a copy of its asks
//! and without a task. So a rarely used key costs little more than without leases.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use super::{call::Inner, lease::Asked};
use crate::{
    algorithm::Leasable,
    decision::Decisions,
    key::Key,
    policy::Policy,
    store::{Ask, Backend, BoxFuture, Check, Store, StoreError},
    time::Clock,
};

/// A request of one call for its cost alone. When it is dropped without an answer, others can ask.
struct InFlight<S, Rule: Leasable, C> {
    inner: Arc<Inner<S, Rule, C>>,
    asked: Asked<Rule>,
    is_answered: bool,
    place: (Policy, Key),
}

pin_project! {
    /// The answer of such a call. Most keys that are called rarely pay for no more than this and
    /// the store's own future.
    struct Exact<F, S, Rule: Leasable, C> {
        #[pin]
        answer: F,
        in_flight: InFlight<S, Rule, C>,
    }
}

impl<S, Rule: Leasable, C> Drop for InFlight<S, Rule, C> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.inner.book.failed(&self.asked, &Ok(()));
        }
    }
}

impl<S, Rule: Leasable, C: Clock> InFlight<S, Rule, C> {
    fn answered(&mut self, answer: Result<Decisions, StoreError>) -> Result<Decisions, StoreError> {
        self.is_answered = true;
        let (book, asked) = (&self.inner.book, &self.asked);
        match &answer {
            Err(error) => book.failed(asked, &Err(error.duplicate())),
            Ok(decisions) => match decisions.as_slice() {
                [decision] => {
                    let now = self.inner.config.clock.now();
                    self.inner.nodes.note_answer(decision);
                    let (policy, key) = &self.place;
                    let decision = book.answered(asked, (policy, key), *decision, now);
                    return Ok(decision.of_policy(policy.digest()).into());
                }
                _ => book.failed(asked, &Ok(())),
            },
        }
        answer
    }
}

impl<F, S, Rule, C> Future for Exact<F, S, Rule, C>
where
    F: Future<Output = Result<Decisions, StoreError>>,
    Rule: Leasable,
    C: Clock,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let answer = ready!(this.answer.poll(context));
        Poll::Ready(this.in_flight.answered(answer))
    }
}

impl<S, Rule, C> Inner<S, Rule, C>
where
    S: Store<Rule, Answer: Send + 'static> + Backend<Error = StoreError> + Send + Sync + 'static,
    Rule: Leasable,
    C: Clock + Send + Sync + 'static,
{
    /// Asks the store for the cost of a call.
    pub(super) fn ask_exactly(
        self: &Arc<Self>,
        ask: &Ask<'_, Rule>,
        asked: Asked<Rule>,
    ) -> Check<BoxFuture<Result<Decisions, StoreError>>> {
        self.count_node(ask.policy());
        self.sweep();
        let mut in_flight = InFlight {
            inner: Arc::clone(self),
            asked,
            is_answered: false,
            place: (ask.policy().clone(), *ask.key()),
        };
        match self.store.acquire(&[in_flight.asked.ask(ask)]) {
            Check::Ready(answer) => Check::Ready(in_flight.answered(answer)),
            Check::Pending(answer) => Check::Pending(Box::pin(Exact { answer, in_flight })),
        }
    }
}
