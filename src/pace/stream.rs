//! Streams whose items come no faster than a rule allows.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use pin_project_lite::pin_project;

use super::{NeverReady, Pacer};
use crate::{
    algorithm::Algorithm,
    decision::{Cost, Decision},
    time::Clock,
};

impl<A: Algorithm, C> Pacer<A, C> {
    /// Returns a stream of the items of `inner`, no faster than the rule allows. Each item costs one unit.
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

    /// Returns a stream of the items of `inner`, no faster than the rule allows. Each item costs `cost_of(&item)`.
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
    /// let mut paced = pacer.stream_by(chunks, |chunk| Cost::new(chunk.len() as u64).unwrap_or(Cost::ONE));
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
    A: Algorithm<State: Send> + Send + Sync + 'static,
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

impl<S: Stream, A: Algorithm, C, F> fmt::Debug for PacedStreamBy<S, A, C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedStreamBy")
            .field("holds_an_item", &self.held.is_some())
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// A stream paced by a [`Pacer`], with one unit for each item: made by [`Pacer::stream`].
    ///
    /// # Order
    ///
    /// The stream takes one item from the inner stream, then waits for its unit in the pacer's queue. It takes the next
    /// item only after it has yielded this one. So a unit is spent when its item is yielded: an idle stream holds no unit
    /// in advance, and the end of a stream wastes none. The stream therefore buffers one item, which
    /// [`into_parts`](Self::into_parts) returns.
    ///
    /// # Cancellation
    ///
    /// A dropped stream has spent nothing for its buffered item. A stream that has one and is not polled may block the
    /// tasks behind it in the queue.
    ///
    /// # End
    ///
    /// The stream ends with the inner stream. It also ends if the rule can never let a unit pass again, which no rule of
    /// this crate does; [`into_parts`](Self::into_parts) then returns the remaining item.
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
    A: Algorithm<State: Send> + Send + Sync + 'static,
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

impl<S: Stream, A: Algorithm, C> fmt::Debug for PacedStream<S, A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedStream")
            .field("paced", &self.paced)
            .finish_non_exhaustive()
    }
}
