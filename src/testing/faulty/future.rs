//! An answer that meets a fault on its way.

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
    #[must_use = "futures do nothing unless polled"]
    pub struct FaultyFuture<F: Future> {
        #[pin]
        answer: Option<CheckFuture<F>>,
        on_its_way: OnItsWay,
    }
}

/// What happens before the answer, or instead of it.
enum OnItsWay {
    /// So many polls more.
    Late(u32),
    /// What was released so often when it began.
    Held(Faults, u64),
    Lost,
    Failing(Option<Error>),
    Silent,
}

impl<F: Future> FaultyFuture<F> {
    fn with(answer: Option<Check<F>>, on_its_way: OnItsWay) -> Self {
        Self {
            answer: answer.map(IntoFuture::into_future),
            on_its_way,
        }
    }

    pub(super) fn late(answer: Check<F>, polls: u32) -> Self {
        Self::with(Some(answer), OnItsWay::Late(polls))
    }

    pub(super) fn held(answer: Check<F>, faults: Faults) -> Self {
        let since = faults.released();
        Self::with(Some(answer), OnItsWay::Held(faults, since))
    }

    pub(super) fn lost(answer: Check<F>) -> Self {
        Self::with(Some(answer), OnItsWay::Lost)
    }

    pub(super) fn failing(error: Error) -> Self {
        Self::with(None, OnItsWay::Failing(Some(error)))
    }

    pub(super) fn silent() -> Self {
        Self::with(None, OnItsWay::Silent)
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
        match this.on_its_way {
            OnItsWay::Late(0) | OnItsWay::Lost => {}
            OnItsWay::Late(polls) => {
                *polls -= 1;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            OnItsWay::Held(faults, since) => {
                if !faults.is_released(*since, cx.waker()) {
                    return Poll::Pending;
                }
            }
            OnItsWay::Failing(error) => {
                return error
                    .take()
                    .map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
            }
            OnItsWay::Silent => return Poll::Pending,
        }
        let Some(answer) = this.answer.as_pin_mut() else {
            return Poll::Pending;
        };
        let answer = ready!(answer.poll(cx));
        Poll::Ready(match this.on_its_way {
            OnItsWay::Lost => Err(Error::timeout()),
            _ => answer.map_err(Into::into),
        })
    }
}
