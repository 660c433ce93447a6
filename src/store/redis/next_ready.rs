//! The first of several futures.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

/// Waits for the first of the futures, removes it, and returns its output; `None` without futures.
pub(super) async fn next_ready<T>(
    futures: &mut Vec<Pin<Box<impl Future<Output = T>>>>,
) -> Option<T> {
    poll_fn(|cx| {
        for n in 0..futures.len() {
            if let Poll::Ready(value) = futures[n].as_mut().poll(cx) {
                drop(futures.swap_remove(n));
                return Poll::Ready(Some(value));
            }
        }
        if futures.is_empty() {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    })
    .await
}
