//! Operations that are in flight at the same time.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

/// Runs futures at once, up to `most` of them at a time. They are polled first in their order. Returns their outputs in that order.
///
/// For operations on a connection that pipelines those of concurrent callers. No task is spawned, so all of them end with the returned future.
pub(in crate::store) async fn concurrently<F: Future>(
    most: usize,
    futures: Vec<F>,
) -> Vec<F::Output> {
    let mut waiting = futures.into_iter().enumerate();
    let mut in_flight: Vec<(usize, Pin<Box<F>>)> = Vec::new();
    let mut outputs: Vec<Option<F::Output>> = Vec::new();
    poll_fn(|cx| {
        let mut is_pending = |(n, future): &mut (usize, Pin<Box<F>>)| match future.as_mut().poll(cx)
        {
            Poll::Ready(output) => {
                let missing = (*n + 1).saturating_sub(outputs.len());
                outputs.extend((0..missing).map(|_| None));
                outputs[*n] = Some(output);
                false
            }
            Poll::Pending => true,
        };
        in_flight.retain_mut(&mut is_pending);
        while in_flight.len() < most.max(1)
            && let Some((n, future)) = waiting.next()
        {
            let mut begun = (n, Box::pin(future));
            if is_pending(&mut begun) {
                in_flight.push(begun);
            }
        }
        match in_flight.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::{
        cell::{Cell, RefCell},
        time::Duration,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn so_many_are_in_flight_and_outputs_keep_their_order() {
        let (in_flight, greatest) = (Cell::new(0), Cell::new(0));
        let begun = RefCell::new(Vec::new());
        let operation = async |n: u64| {
            begun.borrow_mut().push(n);
            in_flight.set(in_flight.get() + 1);
            greatest.set(greatest.get().max(in_flight.get()));
            // Of each three one is slow, and one is ready at once.
            tokio::time::sleep(Duration::from_millis(n % 3 * 10)).await;
            in_flight.set(in_flight.get() - 1);
            n * n
        };
        let outputs = concurrently(4, (0..30).map(operation).collect()).await;
        assert_eq!(outputs, (0..30).map(|n| n * n).collect::<Vec<_>>());
        assert_eq!(*begun.borrow(), (0..30).collect::<Vec<_>>());
        assert_eq!(greatest.get(), 4);
        let none = concurrently(4, (0..0).map(operation).collect()).await;
        assert!(none.is_empty());
        assert_eq!(
            concurrently(0, (0..2).map(operation).collect()).await,
            [0, 1]
        );
    }
}
