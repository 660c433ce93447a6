//! Polling of futures without a runtime.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

/// Returns the output of a future, or `None` if `end` completes first.
pub(super) async fn unless<T>(
    future: impl Future<Output = T>,
    end: impl Future<Output = ()>,
) -> Option<T> {
    let (mut future, mut end) = (pin!(future), pin!(end));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Polls a future up to `times` times, each time it is woken, then drops it.
pub(super) async fn polled<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(|cx| {
        let Some(less) = left.checked_sub(1) else {
            return Poll::Ready(None);
        };
        left = less;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Polls all futures once, in order. Drops those that `is_dropped` selects by index and that are not ready, and awaits
/// the others together. Returns `None` for dropped ones.
pub(super) async fn together<F: Future>(
    futures: impl IntoIterator<Item = F>,
    is_dropped: impl Fn(usize) -> bool,
) -> Vec<Option<F::Output>> {
    let mut futures: Vec<Option<Pin<Box<F>>>> = futures
        .into_iter()
        .map(|future| Some(Box::pin(future)))
        .collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    let mut is_first_poll = true;
    poll_fn(|cx| {
        for (slot, output) in futures.iter_mut().zip(&mut outputs) {
            let Some(future) = slot else { continue };
            if let Poll::Ready(ready) = future.as_mut().poll(cx) {
                (*slot, *output) = (None, Some(ready));
            }
        }
        if is_first_poll {
            is_first_poll = false;
            for (n, slot) in futures.iter_mut().enumerate() {
                slot.take_if(|_| is_dropped(n));
            }
        }
        if futures.iter().all(Option::is_none) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    outputs
}
