//! An answer that is ready, or a future of one.

use std::{
    convert::Infallible,
    fmt,
    future::{Future, IntoFuture},
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

/// An answer that is ready, or a future of one.
///
/// A store in memory answers at once, without a waker or an allocation; a store on a server returns
/// a future. `.await` works for both:
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{Local, Store, driver::{Ask, Check}};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let (store, policy, rule) = (Local::new(), Policy::new("api"), TokenBucket::per_second(10));
/// let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
///
/// let decisions = store.acquire(&ask).await.unwrap();
/// assert!(decisions.is_admitted());
///
/// // `Local` never waits, so this needs no runtime.
/// let Check::Ready(decisions) = store.acquire(&ask) else { unreachable!() };
/// assert!(decisions.unwrap().is_admitted());
/// # }
/// ```
#[must_use = "a pending check does nothing unless it is awaited"]
pub enum Check<F: Future> {
    /// The answer.
    Ready(F::Output),
    /// A future of the answer.
    Pending(F),
}

impl<F: NeverWaits> Check<F> {
    /// Returns the answer of a store that always answers at once, such as [`Local`](super::Local),
    /// without a runtime.
    ///
    /// ```
    /// use tollgate::{Cost, Policy, TokenBucket};
    /// use tollgate::store::{Local, Store, driver::Ask};
    ///
    /// let (store, policy, rule) = (Local::new(), Policy::new("api"), TokenBucket::per_second(10));
    /// let answer = store.acquire(&[Ask::new(&policy, &rule, "alice".into(), Cost::ONE)]).at_once();
    /// assert!(answer.unwrap().is_admitted());
    /// ```
    pub fn at_once(self) -> F::Output {
        match self {
            Self::Ready(output) => output,
            Self::Pending(future) => future.at_once(),
        }
    }
}

impl<F: Future> Check<F> {
    /// Passes the answer to `next`, and returns what that makes of it.
    pub(crate) fn then<N: Then<F::Output>>(self, mut next: N) -> Check<ThenFuture<F, N>> {
        match self {
            Self::Ready(answer) => Check::Ready(next.then(answer)),
            Self::Pending(future) => Check::Pending(ThenFuture { future, next }),
        }
    }
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
                Self::Ready(output) => CheckState::Ready {
                    output: Some(output),
                },
                Self::Pending(future) => CheckState::Pending { future },
            },
        }
    }
}

pin_project! {
    /// The future of a [`Check`], returned by its `into_future`.
    #[must_use = "futures do nothing unless polled or awaited"]
    pub struct CheckFuture<F: Future> {
        #[pin]
        state: CheckState<F>,
    }
}

pin_project! {
    #[project = CheckStateProj]
    enum CheckState<F: Future> {
        Ready { output: Option<F::Output> },
        Pending { #[pin] future: F },
    }
}

impl_debug!([F: Future] CheckFuture<F>);

impl<F: Future> Future for CheckFuture<F> {
    type Output = F::Output;

    /// # Panics
    ///
    /// When polled again after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.project().state.project() {
            CheckStateProj::Ready { output } => match output.take() {
                Some(output) => Poll::Ready(output),
                None => panic!("`CheckFuture` polled after it was ready"),
            },
            CheckStateProj::Pending { future } => future.poll(cx),
        }
    }
}

/// Takes in the answer of a store for the wrapper around it.
///
/// A trait and no closure, so that the futures of wrappers are types that can be named.
pub trait Then<T> {
    /// The answer of the wrapper.
    type Output;

    /// Takes in the answer of the store inside. Called once.
    fn then(&mut self, answer: T) -> Self::Output;
}

pin_project! {
    /// The future of an answer that [`Then`] takes in.
    #[must_use = "futures do nothing unless polled or awaited"]
    pub struct ThenFuture<F, N> {
        #[pin]
        future: F,
        next: N,
    }
}

impl_debug!(ThenFuture<F, N>);

impl<F: Future, N: Then<F::Output>> Future for ThenFuture<F, N> {
    type Output = N::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<N::Output> {
        let this = self.project();
        let answer = ready!(this.future.poll(cx));
        Poll::Ready(this.next.then(answer))
    }
}

/// The future of a store that answers at once, alone or within wrappers that add no wait. The type
/// has no values.
///
/// [`Check::at_once`](super::Check::at_once) needs it.
///
/// ```
/// use tollgate::{Cost, Decision, Limiter, Policy, TokenBucket};
/// use tollgate::store::{Local, Store, driver::NeverWaits};
///
/// /// A decision without a runtime, for any store that answers at once.
/// fn decide<S: Store<TokenBucket, Error = std::convert::Infallible, Answer: NeverWaits>>(
///     limiter: &Limiter<TokenBucket, S>,
/// ) -> Decision {
///     limiter.check("alice", Cost::ONE).at_once()
/// }
///
/// let limiter = Limiter::new(Policy::new("jobs"), TokenBucket::per_second(10), Local::new());
/// assert!(decide(&limiter).is_admitted());
/// ```
#[diagnostic::on_unimplemented(
    message = "this store does not always answer at once",
    note = "`.await` the answer instead; `Local` answers at once, and so does `Blocks` around it"
)]
pub trait NeverWaits: Future {
    /// Converts the future, which cannot exist, into its output.
    fn at_once(self) -> Self::Output;
}

/// The future of a store that always answers at once. The type has no values, so [`Check::Pending`]
/// cannot occur.
///
/// The documentation of [`Store`](super::Store) has a store that uses it.
pub struct Never<T> {
    never: Infallible,
    output: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Never<T> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.never {}
    }
}

impl<T> NeverWaits for Never<T> {
    fn at_once(self) -> T {
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
