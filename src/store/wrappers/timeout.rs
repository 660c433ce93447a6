//! A store with a deadline for each answer.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

use crate::{
    algorithm::Algorithm,
    key::Key,
    policy::Policy,
    stats::Counter,
    store::{
        Ask, Backend, BoxFuture, Check, Delta, FleetStore, NodeCounts, Settlement, Store,
        StoreError, SyncFuture, delegate,
    },
};

/// A store with a deadline for each answer, after which a call fails with an error that
/// [`is_timeout`](StoreError::is_timeout).
///
/// Created by [`timeout`](crate::store::StoreExt::timeout). The deadline applies to `settle` and
/// `reset` too. After it, the store's future is dropped; the call may still be charged, at most
/// once. Nothing is retried. An answer that is ready at the deadline is used. An answer that is
/// ready at once costs neither a timer nor an allocation.
///
/// The time is that of tokio's timer, in milliseconds, and starts when the answer is first polled.
///
/// # Panics
///
/// When an answer that is not ready at once is awaited outside of a tokio runtime, or in one
/// without a timer.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::future::BoxFuture;
/// use tollgate::store::{Store, StoreError, StoreExt};
/// use tollgate::store::driver::{Ask, Check, Decisions, Settlement};
/// # use tollgate::{key::Key, store::Backend};
/// # type Never<T> = BoxFuture<Result<T, StoreError>>;
/// # fn never<T: Send + 'static>() -> Check<Never<T>> { Check::Pending(Box::pin(std::future::pending())) }
/// # #[derive(Clone)] struct Silent;
/// # impl Backend for Silent { type Error = StoreError; }
/// # impl Store<TokenBucket> for Silent {
/// #     type Answer = Never<Decisions>;
/// #     type Done = Never<()>;
/// #     fn acquire(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Never<Decisions>> { never() }
/// #     fn look(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Never<Decisions>> { never() }
/// #     fn settle(&self, _: Vec<Settlement<'_, TokenBucket>>) -> Check<Never<()>> { never() }
/// #     fn reset(&self, _: &Policy, _: &Key) -> Check<Never<()>> { never() }
/// # }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// // `Silent` never answers.
/// let store = Silent.timeout(Duration::from_millis(100));
/// let (policy, rule) = (Policy::new("api"), TokenBucket::per_second(10));
/// let answer = store.acquire(&[Ask::new(&policy, &rule, "alice".into(), Cost::ONE)]).await;
/// assert!(answer.unwrap_err().is_timeout());
/// assert_eq!(store.timeouts(), 1);
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "deadline")]
#[must_use]
pub struct Timeout<S> {
    store: S,
    after: Duration,
    timeouts: Arc<Counter>,
}

impl<S> Timeout<S> {
    pub(in crate::store) fn new(store: S, after: Duration) -> Self {
        Self {
            store,
            after,
            timeouts: Arc::default(),
        }
    }

    /// Returns the wrapped store, for example to read its counters.
    pub fn get_ref(&self) -> &S {
        &self.store
    }

    /// Returns the number of calls without an answer within the deadline. Clones share the count.
    pub fn timeouts(&self) -> u64 {
        self.timeouts.get()
    }

    fn with_deadline<F: Future>(&self, check: Check<F>) -> Check<TimeoutFuture<F>>
    where
        TimeoutFuture<F>: Future<Output = F::Output>,
    {
        match check {
            Check::Ready(result) => Check::Ready(result),
            Check::Pending(answer) => Check::Pending(self.deadline_of(answer)),
        }
    }

    fn deadline_of<F>(&self, answer: F) -> TimeoutFuture<F> {
        TimeoutFuture {
            answer: Some(answer),
            deadline: None,
            after: self.after,
            timeouts: Arc::clone(&self.timeouts),
        }
    }
}

pin_project! {
    /// The future of a store with a [`Timeout`].
    #[must_use = "futures do nothing unless polled or awaited"]
    pub struct TimeoutFuture<F> {
        #[pin]
        answer: Option<F>,
        // Set by the first poll: a future that is dropped unpolled needs no runtime.
        #[pin]
        deadline: Option<Sleep>,
        after: Duration,
        timeouts: Arc<Counter>,
    }
}

impl_debug!(TimeoutFuture<F>);

impl<F, T> Future for TimeoutFuture<F>
where
    F: Future<Output = Result<T, StoreError>>,
{
    type Output = Result<T, StoreError>;

    /// # Panics
    ///
    /// When polled again after it was ready; or outside of a tokio runtime with time.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(answer) = this.answer.as_mut().as_pin_mut() else {
            panic!("`TimeoutFuture` polled after it was ready");
        };
        // Polled first: the answer could use up the task's budget each time, and starve the timer.
        let mut is_over = match this.deadline.as_mut().as_pin_mut() {
            Some(deadline) => deadline.poll(cx).is_ready(),
            None => false,
        };
        let result = match answer.poll(cx) {
            Poll::Ready(result) => result,
            Poll::Pending => {
                if this.deadline.is_none() {
                    this.deadline.set(Some(sleep(*this.after)));
                    let deadline = this.deadline.as_mut().as_pin_mut();
                    is_over = deadline.is_some_and(|deadline| deadline.poll(cx).is_ready());
                }
                if !is_over {
                    return Poll::Pending;
                }
                this.timeouts.add(1);
                Err(StoreError::timeout())
            }
        };
        // Drops the store's future and the timer now, not when this one is dropped.
        this.answer.set(None);
        this.deadline.set(None);
        Poll::Ready(result)
    }
}

impl<S: Backend<Error = StoreError>> Backend for Timeout<S> {
    type Error = StoreError;

    delegate!(Backend, self => self.store);
}

impl<Rule, S: Store<Rule, Error = StoreError>> Store<Rule> for Timeout<S> {
    type Answer = TimeoutFuture<S::Answer>;
    type Done = TimeoutFuture<S::Done>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.with_deadline(self.store.acquire(asks))
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.with_deadline(self.store.look(asks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        self.with_deadline(self.store.settle(settlements))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.with_deadline(self.store.reset(policy, key))
    }

    delegate!(Store<Rule>, self => self.store; renew, fits);

    fn fleet(&self) -> Option<&dyn FleetStore<Rule, Error = Self::Error>>
    where
        Rule: Algorithm,
    {
        Some(self)
    }
}

impl<Rule, S> FleetStore<Rule> for Timeout<S>
where
    Rule: Algorithm,
    S: Store<Rule, Error = StoreError>,
{
    fn count_node(
        &self,
        policy: &Policy,
        period: u64,
    ) -> Option<BoxFuture<Result<NodeCounts, StoreError>>> {
        let counting = self.store.fleet()?.count_node(policy, period)?;
        Some(Box::pin(self.deadline_of(counting)))
    }

    fn sync(&self, deltas: &[Delta<'_, Rule>]) -> Option<SyncFuture<Rule, StoreError>> {
        let syncing = self.store.fleet()?.sync(deltas)?;
        Some(Box::pin(self.deadline_of(syncing)))
    }
}
