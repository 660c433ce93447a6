//! The future of a call of a limiter.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;

use crate::{
    decision::{Decision, Decisions},
    store::{Check, MayFail, NeverWaits},
    time::Timestamp,
};

pin_project! {
    /// The future of a call of a [`Limiter`](crate::Limiter).
    ///
    /// Its output is plain if the store cannot fail, and a `Result` otherwise; see [`MayFail`].
    ///
    /// ```
    /// use tollgate::{Cost, Decision, Limiter, Policy, TokenBucket, prelude::*};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let limiter = Limiter::new(Policy::new("jobs"), TokenBucket::per_second(10), Local::new());
    /// let decision: Decision = limiter.check("alice", Cost::ONE).await;
    /// assert!(decision.is_admitted());
    /// # }
    /// ```
    #[must_use = "futures do nothing unless polled or awaited"]
    pub struct LimiterFuture<F> {
        #[pin]
        call: F,
    }
}

impl<F> fmt::Debug for LimiterFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterFuture").finish_non_exhaustive()
    }
}

/// A result of a store, which a limiter returns as another type.
pub trait Plain {
    /// The type that the limiter returns.
    type Plain;

    /// Converts the result.
    fn plain(self) -> Self::Plain;
}

impl Plain for Decisions {
    type Plain = Decision;

    /// Returns the decision about the only ask.
    fn plain(self) -> Decision {
        let decision = self.as_slice().first().copied();
        // A store without an answer is wrong, and opens no gate.
        decision.unwrap_or_else(|| Decision::unsupported(Timestamp::default()))
    }
}

impl Plain for Decision {
    type Plain = Self;

    fn plain(self) -> Self {
        self
    }
}

impl Plain for Option<Duration> {
    type Plain = Self;

    fn plain(self) -> Self {
        self
    }
}

impl Plain for () {
    type Plain = ();

    fn plain(self) {}
}

/// Converts the result of a call.
fn output<T: Plain, E: MayFail>(result: Result<T, E>) -> E::Output<T::Plain> {
    E::output(result.map(T::plain))
}

/// Converts a call to a store into one of a limiter.
pub(super) fn call<F, T, E>(check: Check<F>) -> Check<LimiterFuture<F>>
where
    F: Future<Output = Result<T, E>>,
    T: Plain,
    E: MayFail,
{
    match check {
        Check::Ready(result) => Check::Ready(output(result)),
        Check::Pending(call) => Check::Pending(LimiterFuture { call }),
    }
}

impl<F, T, E> Future for LimiterFuture<F>
where
    F: Future<Output = Result<T, E>>,
    T: Plain,
    E: MayFail,
{
    type Output = E::Output<T::Plain>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(output(ready!(self.project().call.poll(cx))))
    }
}

impl<F, T, E> NeverWaits for LimiterFuture<F>
where
    F: NeverWaits + Future<Output = Result<T, E>>,
    T: Plain,
    E: MayFail,
{
    fn at_once(self) -> Self::Output {
        output(self.call.at_once())
    }
}
