//! The future of a faulty store.

use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use super::Faults;
use crate::store::{Check, CheckFuture, Error};

pin_project! {
    /// The future of a [`Faulty`](super::Faulty) store.
    ///
    /// ```
    /// use tollgate::{Cost, Policy, TokenBucket, store::{Ask, Check, Local, Store}};
    /// use tollgate::testing::{Fault, Faulty};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let store = Faulty::new(Local::new());
    /// store.faults().always(Fault::Late(3));
    /// let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(2));
    /// let check = store.acquire(&[Ask::new(&policy, &rule, "alice".into(), Cost::ONE)]);
    /// assert!(matches!(check, Check::Pending(_)));
    /// assert!(check.await.unwrap().is_admitted());
    /// # }
    /// ```
    #[must_use = "futures do nothing unless polled"]
    pub struct FaultyFuture<F: Future> {
        #[pin]
        answer: Option<CheckFuture<F>>,
        effect: FaultEffect,
    }
}

/// The effect of a fault on an answer.
enum FaultEffect {
    /// The number of polls before the answer.
    Late(u32),
    /// The switch that releases the answer, and the number of releases when the call began.
    Held(Faults, u64),
    Lost,
    Failing(Option<Error>),
    Silent,
}

impl<F: Future> FaultyFuture<F> {
    fn with(answer: Option<Check<F>>, effect: FaultEffect) -> Self {
        Self {
            answer: answer.map(IntoFuture::into_future),
            effect,
        }
    }

    pub(super) fn late(answer: Check<F>, polls: u32) -> Self {
        Self::with(Some(answer), FaultEffect::Late(polls))
    }

    pub(super) fn held(answer: Check<F>, faults: Faults) -> Self {
        let since = faults.released();
        Self::with(Some(answer), FaultEffect::Held(faults, since))
    }

    pub(super) fn lost(answer: Check<F>) -> Self {
        Self::with(Some(answer), FaultEffect::Lost)
    }

    pub(super) fn failing(error: Error) -> Self {
        Self::with(None, FaultEffect::Failing(Some(error)))
    }

    pub(super) fn silent() -> Self {
        Self::with(None, FaultEffect::Silent)
    }
}

impl<F: Future> fmt::Debug for FaultyFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyFuture").finish_non_exhaustive()
    }
}

impl<F, T, E> Future for FaultyFuture<F>
where
    F: Future<Output = Result<T, E>>,
    E: Into<Error>,
{
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.effect {
            FaultEffect::Late(0) | FaultEffect::Lost => {}
            FaultEffect::Late(polls) => {
                *polls -= 1;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            FaultEffect::Held(faults, since) => {
                if !faults.is_released(*since, cx.waker()) {
                    return Poll::Pending;
                }
            }
            FaultEffect::Failing(error) => {
                return error
                    .take()
                    .map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
            }
            FaultEffect::Silent => return Poll::Pending,
        }
        let Some(answer) = this.answer.as_pin_mut() else {
            return Poll::Pending;
        };
        let answer = ready!(answer.poll(cx));
        Poll::Ready(match this.effect {
            FaultEffect::Lost => Err(Error::timeout()),
            _ => answer.map_err(Into::into),
        })
    }
}
