//! Operations of several calls to a store, one after the other.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use crate::store::{Check, NeverWaits};

/// An operation that makes several calls to a store, each after the result of the one before.
pub trait Steps: Sized {
    /// The future of an answer.
    type Answer: Future;
    /// The future of the end of a settlement or a reset.
    type Done: Future;
    /// The result of the operation.
    type Output;

    /// Continues after an answer.
    fn answered(&mut self, answer: <Self::Answer as Future>::Output) -> Progress<Self>;

    /// Continues after a settlement or a reset.
    fn done(&mut self, done: <Self::Done as Future>::Output) -> Progress<Self>;
}

/// The next call of an operation, or its result.
pub enum Progress<M: Steps> {
    Answer(Check<M::Answer>),
    Done(Check<M::Done>),
    Finished(M::Output),
}

impl<M: Steps> fmt::Debug for Progress<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answer(_) => "Progress::Answer(..)",
            Self::Done(_) => "Progress::Done(..)",
            Self::Finished(_) => "Progress::Finished(..)",
        })
    }
}

pin_project! {
    /// The future of an operation of several calls.
    #[must_use = "futures do nothing unless polled or awaited"]
    pub struct StepsFuture<M: Steps> {
        steps: M,
        #[pin]
        waiting: StepsCall<M::Answer, M::Done>,
    }
}

pin_project! {
    #[project = StepsCallProj]
    enum StepsCall<A, D> {
        Answer { #[pin] answer: A },
        Done { #[pin] done: D },
    }
}

/// Runs an operation until a call is not ready at once.
pub(crate) fn run<M: Steps>(mut steps: M, next: Progress<M>) -> Check<StepsFuture<M>> {
    match advance(&mut steps, next) {
        Ok(output) => Check::Ready(output),
        Err(waiting) => Check::Pending(StepsFuture { steps, waiting }),
    }
}

fn advance<M: Steps>(
    steps: &mut M,
    mut next: Progress<M>,
) -> Result<M::Output, StepsCall<M::Answer, M::Done>> {
    loop {
        next = match next {
            Progress::Answer(Check::Ready(answer)) => steps.answered(answer),
            Progress::Answer(Check::Pending(answer)) => return Err(StepsCall::Answer { answer }),
            Progress::Done(Check::Ready(done)) => steps.done(done),
            Progress::Done(Check::Pending(done)) => return Err(StepsCall::Done { done }),
            Progress::Finished(output) => return Ok(output),
        }
    }
}

impl_debug!([M: Steps] StepsFuture<M>);

impl<M: Steps> Future for StepsFuture<M> {
    type Output = M::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<M::Output> {
        let mut this = self.project();
        loop {
            let next = match this.waiting.as_mut().project() {
                StepsCallProj::Answer { answer } => this.steps.answered(ready!(answer.poll(cx))),
                StepsCallProj::Done { done } => this.steps.done(ready!(done.poll(cx))),
            };
            match advance(this.steps, next) {
                Ok(output) => return Poll::Ready(output),
                Err(waiting) => this.waiting.set(waiting),
            }
        }
    }
}

impl<M: Steps<Answer: NeverWaits, Done: NeverWaits>> NeverWaits for StepsFuture<M> {
    fn at_once(mut self) -> M::Output {
        loop {
            let next = match self.waiting {
                StepsCall::Answer { answer } => self.steps.answered(answer.at_once()),
                StepsCall::Done { done } => self.steps.done(done.at_once()),
            };
            match advance(&mut self.steps, next) {
                Ok(output) => return output,
                Err(waiting) => self.waiting = waiting,
            }
        }
    }
}
