//! Waiting for the budget, in the order of arrival.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_core::Stream;
use pin_project_lite::pin_project;
use tokio::time::sleep;

use crate::{
    algorithm::Algorithm,
    decision::{Cost, Decision},
    pace::{Pacer, RoundRobin, Turn, delay},
    time::{Clock, Timestamp},
};

impl<A: Algorithm, C: Clock> Pacer<A, C> {
    /// Waits until one unit may be spent, and spends it.
    ///
    /// The details are those of [`until_ready_for`](Self::until_ready_for).
    ///
    /// # Errors
    ///
    /// Returns an error if the rule can never let a unit pass again. No rule of this crate does so.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{TokenBucket, time::TokioClock, pace::Pacer};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tollgate::pace::NeverReady> {
    /// let pacer = Pacer::with_clock(TokenBucket::per_second(100).burst(1), TokioClock::new());
    /// let begun = tokio::time::Instant::now();
    /// for _ in 0..50 {
    ///     pacer.until_ready().await?;
    ///     // Work.
    /// }
    /// assert_eq!(begun.elapsed().as_millis(), 490);
    /// # Ok(()) }
    /// ```
    pub async fn until_ready(&self) -> Result<Decision, NeverReady> {
        self.until_ready_for(Cost::ONE).await
    }

    /// Waits until `cost` may be spent, and spends it.
    ///
    /// All clones share one queue, first come, first served: a small cost does not overtake a large
    /// one. The first task in the queue sleeps for the wait of the rule, by tokio's timer, then
    /// tries again by the pacer's clock. If the clock ran slower than the timer, it sleeps for the
    /// rest. A clock that stands still makes it wait forever: in tests, pause tokio's time and use
    /// [`TokioClock`](crate::time::TokioClock).
    ///
    /// # Errors
    ///
    /// Returns an error if the cost is above the rule's capacity, or the rule can never let it pass
    /// for another reason. It spends nothing, and is returned once all earlier tasks are served.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped before it is ready has spent nothing, and the next task in the
    /// queue goes on. A future that is neither dropped nor polled blocks the tasks behind it.
    ///
    /// # Panics
    ///
    /// Panics if it has to sleep outside of a tokio runtime with time.
    pub async fn until_ready_for(&self, cost: Cost) -> Result<Decision, NeverReady> {
        let _first = self.head_of_queue().await;
        loop {
            let now = self.clock().now();
            let decision = self.spend_at_once(&mut self.state(), now, cost);
            if let Some(wait) = delay(&decision) {
                sleep(wait).await;
                // Charged as of `now`, so that the next delay counts from the scheduled departure.
                // Nobody else has spent since, so the decision is the same.
                let departed = self.rule().step(&mut self.state(), now, cost);
                return Ok(departed.decision());
            }
            if decision.is_admitted() {
                return Ok(decision);
            }
            // Nothing here gives back what calls in flight hold.
            let wait = decision.retry_after();
            let Some(wait) = wait.filter(|_| !decision.is_in_flight()) else {
                return Err(NeverReady::new(cost, decision.limit()));
            };
            // An incorrect rule that returns a wait of zero must not spin.
            sleep(wait.max(Duration::from_nanos(1))).await;
        }
    }
}

/// The error of waiting for a cost that can never pass.
///
/// Nothing was spent. In a stream it contains the item.
///
/// # Examples
///
/// ```
/// use tollgate::{Cost, TokenBucket, pace::{NeverReady, Pacer}};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let pacer = Pacer::new(TokenBucket::per_second(10));
/// let never: NeverReady = pacer.until_ready_for(Cost::new(11).unwrap()).await.unwrap_err();
/// assert_eq!(never.limit(), Some(10));
/// # }
/// ```
pub struct NeverReady<T = ()> {
    item: T,
    cost: Cost,
    limit: Option<u64>,
}

impl NeverReady {
    fn new(cost: Cost, limit: Option<u64>) -> Self {
        let item = ();
        Self { item, cost, limit }
    }

    fn with<T>(self, item: T) -> NeverReady<T> {
        let Self { cost, limit, .. } = self;
        NeverReady { item, cost, limit }
    }
}

impl<T> NeverReady<T> {
    /// Returns the cost that was asked for.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Returns the capacity of the rule: the greatest cost in units that can ever pass.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Returns the item of the stream.
    pub fn into_item(self) -> T {
        self.item
    }
}

impl<T> fmt::Display for NeverReady<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cost = self.cost.get();
        match self.limit {
            Some(limit) if limit < cost => write!(
                f,
                "a cost of {cost} can never pass: expected at most {limit}, the capacity of the rule; \
                 split the work, or choose a larger capacity"
            ),
            _ => write!(
                f,
                "a cost of {cost} will never pass again: expected a rule that refills; \
                 choose another rule, or a new pacer"
            ),
        }
    }
}

impl<T> fmt::Debug for NeverReady<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NeverReady({self})")
    }
}

impl<T> Error for NeverReady<T> {}

impl<A: Algorithm, C> Pacer<A, C> {
    /// Returns a stream of the items of `inner`, no faster than the rule allows. Each item costs
    /// one unit.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures_util::{StreamExt, stream};
    /// use tollgate::{TokenBucket, time::TokioClock, pace::Pacer};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let pacer = Pacer::with_clock(TokenBucket::per_second(10).burst(1), TokioClock::new());
    /// let begun = tokio::time::Instant::now();
    /// let items: Vec<_> = pacer.stream(stream::iter(1..=5)).collect().await;
    /// assert_eq!(items, [1, 2, 3, 4, 5]);
    /// assert_eq!(begun.elapsed().as_millis(), 400);
    /// # }
    /// ```
    pub fn stream<S: Stream>(&self, inner: S) -> PacedStream<S, A, C> {
        PacedStream {
            paced: self.stream_by(inner, |_| Cost::ONE),
            left: None,
        }
    }

    /// Returns a stream of the items of `inner`, no faster than the rule allows. Each item costs
    /// `cost_of(&item)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures_util::{StreamExt, stream};
    /// use tollgate::{Cost, TokenBucket, time::TokioClock, pace::Pacer};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// // 1000 bytes a second.
    /// let pacer = Pacer::with_clock(TokenBucket::per_second(1000), TokioClock::new());
    /// let chunks = stream::iter([vec![0; 1000], vec![0; 1001], vec![0; 500]]);
    /// let mut paced = pacer.stream_by(chunks, |chunk| {
    ///     Cost::new(chunk.len() as u64).unwrap_or(Cost::ONE)
    /// });
    /// assert!(paced.next().await.unwrap().is_ok());
    /// // Above the burst, so it can never pass.
    /// let never = paced.next().await.unwrap().unwrap_err();
    /// assert_eq!(never.into_item().len(), 1001);
    /// assert!(paced.next().await.unwrap().is_ok());
    /// # }
    /// ```
    pub fn stream_by<S, F>(&self, inner: S, cost_of: F) -> PacedStreamBy<S, A, C, F>
    where
        S: Stream,
        F: FnMut(&S::Item) -> Cost,
    {
        PacedStreamBy {
            inner,
            pacer: self.clone(),
            cost_of,
            held: None,
        }
    }
}

type Wait = Pin<Box<dyn Future<Output = Result<Decision, NeverReady>> + Send>>;

/// An item that waits for its units.
struct Held<T> {
    item: T,
    wait: Wait,
}

pin_project! {
    /// A stream paced by a [`Pacer`], with a cost for each item: made by [`Pacer::stream_by`].
    ///
    /// The details are those of [`PacedStream`]. An item whose cost can never pass is an error that
    /// [contains the item](NeverReady::into_item); the stream continues after it.
    ///
    /// ```
    /// use futures_util::stream::{Iter, iter};
    /// use tollgate::{Cost, TokenBucket, pace::{Pacer, PacedStreamBy}, time::SystemClock};
    ///
    /// type Chunks = Iter<std::vec::IntoIter<Vec<u8>>>;
    /// type Paced = PacedStreamBy<Chunks, TokenBucket, SystemClock, fn(&Vec<u8>) -> Cost>;
    ///
    /// fn paced(chunks: Vec<Vec<u8>>) -> Paced {
    ///     let pacer = Pacer::new(TokenBucket::per_second(1000));
    ///     pacer.stream_by(iter(chunks), |chunk| Cost::new(chunk.len() as u64).unwrap_or_default())
    /// }
    /// # assert_eq!(paced(vec![vec![7]]).into_parts().1, None);
    /// ```
    #[must_use = "streams do nothing unless polled"]
    pub struct PacedStreamBy<S: Stream, A: Algorithm, C, F> {
        #[pin]
        inner: S,
        pacer: Pacer<A, C>,
        cost_of: F,
        held: Option<Held<S::Item>>,
    }
}

impl<S: Stream, A: Algorithm, C, F> PacedStreamBy<S, A, C, F> {
    /// Returns the inner stream, and the item that was waiting for its units.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        (self.inner, self.held.map(|held| held.item))
    }
}

impl<S, A, C, F> Stream for PacedStreamBy<S, A, C, F>
where
    S: Stream,
    A: Algorithm,
    C: Clock + Send + Sync + 'static,
    F: FnMut(&S::Item) -> Cost,
{
    type Item = Result<S::Item, NeverReady<S::Item>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        let held = match &mut *this.held {
            Some(held) => held,
            empty => {
                let Some(item) = ready!(this.inner.poll_next(cx)) else {
                    return Poll::Ready(None);
                };
                let (pacer, cost) = (this.pacer.clone(), (this.cost_of)(&item));
                let wait = Box::pin(async move { pacer.until_ready_for(cost).await });
                empty.insert(Held { item, wait })
            }
        };
        let answer = ready!(held.wait.as_mut().poll(cx));
        let item = this.held.take().map(|held| held.item);
        Poll::Ready(item.map(|item| match answer {
            Ok(_) => Ok(item),
            Err(never) => Err(never.with(item)),
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let held = usize::from(self.held.is_some());
        let (least, most) = self.inner.size_hint();
        let most = most.and_then(|most| most.checked_add(held));
        (least.saturating_add(held), most)
    }
}

impl_debug!([S: Stream, A: Algorithm, C, F] PacedStreamBy<S, A, C, F>, |it|
    holds_an_item = it.held.is_some()
);

pin_project! {
    /// A stream paced by a [`Pacer`], with one unit for each item: made by [`Pacer::stream`].
    ///
    /// # Order
    ///
    /// The stream takes one item from the inner stream, then waits for its unit in the pacer's
    /// queue. It takes the next item only after it has yielded this one. So a unit is spent when
    /// its item is yielded: an idle stream holds no unit in advance, and the end of a stream wastes
    /// none. The stream therefore buffers one item, which [`into_parts`](Self::into_parts) returns.
    ///
    /// # Cancellation
    ///
    /// A dropped stream has spent nothing for its buffered item. A stream that has one and is not
    /// polled may block the tasks behind it in the queue.
    ///
    /// # End
    ///
    /// The stream ends with the inner stream. It also ends if the rule can never let a unit pass
    /// again, which no rule of this crate does; [`into_parts`](Self::into_parts) then returns the
    /// remaining item.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures_util::{StreamExt, stream};
    /// use tollgate::{TokenBucket, pace::{Pacer, PacedStream}, time::TokioClock};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let pacer = Pacer::with_clock(TokenBucket::per_second(10), TokioClock::new());
    /// let mut jobs: PacedStream<_, _, _> = pacer.stream(stream::iter(["a", "b"]));
    /// assert_eq!(jobs.next().await, Some("a"));
    /// # }
    /// ```
    #[must_use = "streams do nothing unless polled"]
    pub struct PacedStream<S: Stream, A: Algorithm, C> {
        #[pin]
        paced: PacedStreamBy<S, A, C, fn(&S::Item) -> Cost>,
        // The item that can never pass.
        left: Option<S::Item>,
    }
}

impl<S: Stream, A: Algorithm, C> PacedStream<S, A, C> {
    /// Returns the inner stream, and the item that was waiting for its units.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        let (inner, held) = self.paced.into_parts();
        (inner, self.left.or(held))
    }
}

impl<S, A, C> Stream for PacedStream<S, A, C>
where
    S: Stream,
    A: Algorithm,
    C: Clock + Send + Sync + 'static,
{
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let this = self.project();
        if this.left.is_some() {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(this.paced.poll_next(cx)) {
            Some(Ok(item)) => Some(item),
            Some(Err(never)) => {
                *this.left = Some(never.into_item());
                None
            }
            None => None,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (_, most) = self.paced.size_hint();
        (0, most)
    }
}

impl_debug!([S: Stream, A: Algorithm, C] PacedStream<S, A, C>, |it| paced = it.paced);

/// The turns of a [`RoundRobin`] one after the other, for a task that serves all senders.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{TokenBucket, time::{Clock, TokioClock}, pace::{Pacer, RoundRobin, Turns}};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let clock = TokioClock::new();
/// let pacers =
///     [1, 2, 3, 4].map(|limit| Pacer::with_clock(TokenBucket::per_second(limit), clock));
/// let mut turns = Turns::new(RoundRobin::new(Duration::from_secs(1), pacers.len()), clock);
/// let mut sent = [0; 4];
/// for _ in 0..40 {
///     let turn = turns.next_turn().await;
///     assert_eq!(turn.missed, 0);
///     while clock.now() < turn.ends && pacers[turn.sender].can_do_work(clock.now()) {
///         sent[turn.sender] += 1;
///     }
/// }
/// assert_eq!(sent, [10, 20, 30, 40]);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Turns<C> {
    schedule: RoundRobin,
    clock: C,
    /// The beginning of the next turn that was not returned yet.
    due: Timestamp,
}

impl<C: Clock> Turns<C> {
    /// Creates the turns that begin from now on, by `clock`.
    pub fn new(schedule: RoundRobin, clock: C) -> Self {
        let due = schedule.turn(clock.now()).ends;
        Self {
            schedule,
            clock,
            due,
        }
    }

    /// Switches to another schedule, for example when senders come or go.
    ///
    /// The last returned turn keeps its end. The next one is the turn of the new schedule at that
    /// instant, or the rest of it.
    pub fn set_schedule(&mut self, schedule: RoundRobin) {
        self.schedule = schedule;
    }

    /// Waits for the next turn. No turn is returned twice, or after its end.
    ///
    /// If the work of a turn took too long, or the task was woken late, turns may have passed. The
    /// current turn is then returned, and [`missed`](Turn::missed) is the number of turns that were
    /// skipped. Tokio's timer wakes at whole milliseconds, so slices of a few milliseconds are
    /// missed regularly. If the clock steps back, the future waits until it has caught up.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped before it is ready skips no turn.
    ///
    /// # Panics
    ///
    /// Panics if it has to sleep outside of a tokio runtime with time.
    pub async fn next_turn(&mut self) -> Turn {
        loop {
            let now = self.clock.now();
            let early = self.due.saturating_since(now);
            if early.is_zero() {
                let turn = Turn {
                    missed: self.schedule.between(self.due, now),
                    ..self.schedule.turn(now)
                };
                self.due = turn.ends;
                return turn;
            }
            sleep(early).await;
        }
    }
}
