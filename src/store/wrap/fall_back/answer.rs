//! The future of an answer.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use super::{
    batch::Batch,
    call::{Call, Next},
    shared::Shared,
};
use crate::store::{Decisions, Error, NeverFails, Store};

pin_project! {
    /// The future of a [`FallBackTo`](super::FallBackTo) store's answer.
    pub struct FallBackFuture<S, L, Rule>
    where
        S: Store<Rule>,
        L: Store<Rule>,
    {
        #[pin]
        state: State<S, L, Rule>,
        call: Call<S, L, Rule>,
    }
}

pin_project! {
    #[project = StateProj]
    pub(super) enum State<S, L, Rule>
    where
        S: Store<Rule>,
        L: Store<Rule>,
    {
        // Whether the store is there, before something due is settled: by a question that changes nothing. A store
        // that hangs would find a settlement of each request when it goes on.
        Looking { #[pin] look: S::Answer, due: Option<Batch<Rule>> },
        Settling { #[pin] done: S::Done, due: Option<Batch<Rule>> },
        Asking { #[pin] answer: S::Answer, told: Option<Decisions>, #[pin] beside: Beside<S::Done, Rule> },
        Local { #[pin] answer: L::Answer, is_due: bool },
        Over,
    }
}

pin_project! {
    /// Debts of others that are settled while a call asks for its own.
    pub(super) struct Beside<D, Rule> {
        #[pin]
        done: Option<D>,
        batch: Option<Batch<Rule>>,
    }
}

impl<S, L, Rule> FallBackFuture<S, L, Rule>
where
    S: Store<Rule>,
    L: Store<Rule>,
{
    pub(super) fn new(state: State<S, L, Rule>, call: Call<S, L, Rule>) -> Self {
        Self { state, call }
    }
}

impl<S, L, Rule> fmt::Debug for FallBackFuture<S, L, Rule>
where
    S: Store<Rule>,
    L: Store<Rule>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallBackFuture").finish_non_exhaustive()
    }
}

impl<S, L, Rule> Future for FallBackFuture<S, L, Rule>
where
    S: Store<Rule, Error: Into<Error>>,
    L: Store<Rule, Error: NeverFails>,
    Rule: Clone,
{
    type Output = Result<Decisions, Infallible>;

    /// # Panics
    ///
    /// When polled again after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let call = this.call;
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Looking { look, due } => {
                    let look = ready!(look.poll(cx));
                    call.looked(look, taken(due))
                }
                StateProj::Settling { done, due } => {
                    let done = ready!(done.poll(cx));
                    call.settled(done, taken(due))
                }
                StateProj::Asking {
                    answer,
                    told,
                    beside,
                } => {
                    // First, so that it is on its way first.
                    let settled = beside.poll(cx, &call.shared);
                    let answer = match told.take() {
                        Some(decisions) => Ok(decisions),
                        None => ready!(answer.poll(cx)),
                    };
                    match (answer, settled) {
                        (Err(error), _) => call.failed(error),
                        (Ok(decisions), Poll::Ready(())) => {
                            call.shared.answered();
                            Next::Answer(decisions)
                        }
                        (Ok(decisions), Poll::Pending) => {
                            *told = Some(decisions);
                            return Poll::Pending;
                        }
                    }
                }
                StateProj::Local { answer, is_due } => {
                    let is_due = *is_due;
                    let answer = ready!(answer.poll(cx));
                    call.decided(answer.unwrap_or_else(NeverFails::never), is_due)
                }
                StateProj::Over => panic!("`FallBackFuture` polled after it was ready"),
            };
            match next {
                Next::Answer(decisions) => {
                    this.state.set(State::Over);
                    return Poll::Ready(Ok(decisions));
                }
                Next::Wait(state) => this.state.set(state),
            }
        }
    }
}

impl<D, Rule> Beside<D, Rule> {
    pub(super) fn nothing() -> Self {
        let (done, batch) = (None, None);
        Self { done, batch }
    }

    pub(super) fn new(done: D, batch: Batch<Rule>) -> Self {
        let (done, batch) = (Some(done), Some(batch));
        Self { done, batch }
    }

    fn poll<S, L, E>(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        shared: &Shared<S, L, Rule>,
    ) -> Poll<()>
    where
        D: Future<Output = Result<(), E>>,
        E: Into<Error>,
    {
        let mut this = self.project();
        if let Some(done) = this.done.as_mut().as_pin_mut() {
            let result = ready!(done.poll(cx));
            match (result, this.batch.take()) {
                (Ok(()), Some(batch)) => batch.settled(),
                (Ok(()), None) => {}
                (Err(error), batch) => {
                    shared.failed(error, batch.iter().flat_map(Batch::policies));
                }
            }
            this.done.set(None);
        }
        Poll::Ready(())
    }
}

/// What is there to be taken once.
fn taken<T>(once: &mut Option<T>) -> T {
    match once.take() {
        Some(value) => value,
        None => unreachable!("the state is left when it is taken"),
    }
}
