//! An answer, or a future of one.

use std::{
    convert::Infallible,
    fmt,
    future::{Future, IntoFuture},
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;

/// An answer, or a future of one: memory answers at once, a network later, a cache in front of a
/// network sometimes.
///
/// A plain value, so that an answer from memory needs no waker and no allocation.
/// `.await` serves both.
#[must_use = "an answer may be an error or a future"]
pub enum Check<F: Future> {
    /// The answer.
    Ready(F::Output),
    /// A future of it.
    Pending(F),
}

impl<F: Future> fmt::Debug for Check<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready(_) => "Check::Ready(..)",
            Self::Pending(_) => "Check::Pending(..)",
        })
    }
}

impl<F: Future> IntoFuture for Check<F> {
    type Output = F::Output;
    type IntoFuture = CheckFuture<F>;

    fn into_future(self) -> CheckFuture<F> {
        CheckFuture {
            state: match self {
                Self::Ready(output) => State::Ready {
                    output: Some(output),
                },
                Self::Pending(future) => State::Pending { future },
            },
        }
    }
}

pin_project! {
    /// Awaits a [`Check`].
    #[must_use = "futures do nothing unless polled"]
    pub struct CheckFuture<F: Future> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F: Future> {
        Ready { output: Option<F::Output> },
        Pending { #[pin] future: F },
    }
}

impl<F: Future> fmt::Debug for CheckFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckFuture").finish_non_exhaustive()
    }
}

impl<F: Future> Future for CheckFuture<F> {
    type Output = F::Output;

    /// # Panics
    ///
    /// When polled again after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.project().state.project() {
            StateProj::Ready { output } => match output.take() {
                Some(output) => Poll::Ready(output),
                None => panic!("`CheckFuture` polled after it was ready"),
            },
            StateProj::Pending { future } => future.poll(cx),
        }
    }
}

/// The future of a store that always answers at once: there is none.
pub struct Never<T> {
    never: Infallible,
    output: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Never<T> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.never {}
    }
}

impl<T> Future for Never<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        let _ = self.output;
        match self.never {}
    }
}
