//! A stream whose items come no faster than allowed.

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
    /// The items of `inner`, one unit each, no faster than allowed.
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
    pub fn stream<S: Stream>(&self, inner: S) -> Paced<S, A, C> {
        Paced {
            paced: self.stream_by(inner, |_| Cost::ONE),
            left: None,
        }
    }

    /// The items of `inner`, no faster than allowed, where each one costs what `cost_of` says.
    pub fn stream_by<S, F>(&self, inner: S, cost_of: F) -> PacedBy<S, A, C, F>
    where
        S: Stream,
        F: FnMut(&S::Item) -> Cost,
    {
        PacedBy {
            inner,
            pacer: self.clone(),
            cost_of,
            held: None,
        }
    }
}

type Wait = Pin<Box<dyn Future<Output = Result<Decision, NeverReady>> + Send>>;

/// An item that waits for its permission.
struct Held<T> {
    item: T,
    wait: Wait,
}

pin_project! {
    /// A stream at the pace of a [`Pacer`], where each item has its own cost: see [`Pacer::stream_by`].
    ///
    /// All that [`Paced`] says holds here. An item whose cost can never pass is an error, which
    /// [brings it back](NeverReady::into_item); the stream goes on behind it.
    #[must_use = "streams do nothing unless polled"]
    pub struct PacedBy<S: Stream, A: Algorithm, C, F> {
        #[pin]
        inner: S,
        pacer: Pacer<A, C>,
        cost_of: F,
        held: Option<Held<S::Item>>,
    }
}

impl<S: Stream, A: Algorithm, C, F> PacedBy<S, A, C, F> {
    /// The inner stream, and the item that was waiting for its permission.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        (self.inner, self.held.map(|held| held.item))
    }
}

impl<S, A, C, F> Stream for PacedBy<S, A, C, F>
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

impl<S: Stream, A: Algorithm, C, F> fmt::Debug for PacedBy<S, A, C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedBy")
            .field("holds_an_item", &self.held.is_some())
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// A stream at the pace of a [`Pacer`], one unit for each item: see [`Pacer::stream`].
    ///
    /// # Item first, then permission
    ///
    /// One item is taken from the inner stream, then its permission is waited for, in the line of all who wait for
    /// this pacer; the next item is not asked for before this one is gone. So a unit is spent when its item is
    /// yielded: an idle stream holds no permission, which it would use together with the next one, and the end of a
    /// stream wastes none. The price is one item that is kept here; [`into_parts`](Self::into_parts) gives it back.
    ///
    /// # Cancellation
    ///
    /// Dropped, it has spent nothing for the item that it keeps. While it keeps one and is not polled, it
    /// may hold up those behind it in line.
    ///
    /// # End
    ///
    /// It ends with the inner stream. It also ends where the rule will never let a unit pass again, which no rule of
    /// this crate says; what is left is in [`into_parts`](Self::into_parts).
    #[must_use = "streams do nothing unless polled"]
    pub struct Paced<S: Stream, A: Algorithm, C> {
        #[pin]
        paced: PacedBy<S, A, C, fn(&S::Item) -> Cost>,
        // The item that will never pass.
        left: Option<S::Item>,
    }
}

impl<S: Stream, A: Algorithm, C> Paced<S, A, C> {
    /// The inner stream, and the item that was waiting for its permission.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        let (inner, held) = self.paced.into_parts();
        (inner, self.left.or(held))
    }
}

impl<S, A, C> Stream for Paced<S, A, C>
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

impl<S: Stream, A: Algorithm, C> fmt::Debug for Paced<S, A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paced")
            .field("paced", &self.paced)
            .finish_non_exhaustive()
    }
}
