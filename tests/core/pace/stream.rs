//! Streams at the pace of a rule, in tokio's paused time.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{Stream, StreamExt, poll, stream};
use tokio::time;
use tollgate::{
    TokenBucket,
    pace::Pacer,
    time::{Clock, TokioClock},
};

use super::{Lifetime, MILLI, Paused, Spaced, at, cost};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns the items of a stream, each with the millisecond at which it came.
async fn timed<S: Stream>(stream: S) -> Vec<(S::Item, u128)> {
    let begun = time::Instant::now();
    let timed = stream.map(|item| (item, begun.elapsed().as_millis()));
    timed.collect().await
}

fn even() -> TokenBucket {
    TokenBucket::per_second(10).burst(1)
}

#[tokio::test(start_paused = true)]
async fn all_items_come_in_order_and_never_early() {
    let pacer = Pacer::with_clock(even(), Paused::new());
    let items = timed(pacer.stream(stream::iter(0..200))).await;
    let expected: Vec<_> = (0..200).map(|nth| (nth, nth as u128 * 100)).collect();
    assert_eq!(items, expected);

    let pacer = Pacer::with_clock(even().burst(3), Paused::new());
    let items = timed(pacer.stream(stream::iter(["a", "b", "c", "d", "e"]))).await;
    assert_eq!(
        items,
        [("a", 0), ("b", 0), ("c", 0), ("d", 100), ("e", 200)]
    );

    let spaced = Spaced::new(100 * MILLI, 9);
    let pacer = Pacer::with_clock(spaced, Paused::new());
    let items = timed(pacer.stream(stream::iter(0..5))).await;
    assert_eq!(items, [(0, 0), (1, 100), (2, 200), (3, 300), (4, 400)]);
}

#[tokio::test(start_paused = true)]
async fn the_end_comes_with_the_last_item_and_spends_nothing() {
    let clock = Paused::new();
    let pacer = Pacer::with_clock(TokenBucket::per_second(10), clock);
    assert_eq!(timed(pacer.stream(stream::empty::<()>())).await, []);
    assert_eq!(pacer.look(at(0)).remaining(), Some(10));

    let pacer = Pacer::with_clock(even(), clock);
    let begun = time::Instant::now();
    assert_eq!(pacer.stream(stream::iter(0..3)).count().await, 3);
    assert_eq!(begun.elapsed(), millis(200));
    time::sleep(millis(100)).await;
    assert!(pacer.can_do_work(clock.now()));
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_accumulates_no_permission() {
    // Two items each half a second, with one allowed in each tenth of a second.
    let items = stream::unfold(0, async |nth| {
        if nth % 2 == 0 {
            time::sleep(millis(500)).await;
        }
        (nth < 6).then_some((nth, nth + 1))
    });
    let pacer = Pacer::with_clock(even(), Paused::new());
    let instants = [500, 600, 1100, 1200, 1700, 1800];
    let expected: Vec<_> = (0..6).zip(instants).collect();
    assert_eq!(timed(pacer.stream(items)).await, expected);
}

#[tokio::test(start_paused = true)]
async fn at_most_one_item_is_taken_ahead_and_returned() {
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = {
        let taken = taken.clone();
        stream::iter(0..10).inspect(move |_| {
            taken.fetch_add(1, Ordering::Relaxed);
        })
    };
    let pacer = Pacer::with_clock(even(), TokioClock::new());
    let mut paced = Box::pin(pacer.stream(counted));
    assert_eq!(paced.size_hint(), (0, Some(10)));
    assert_eq!(taken.load(Ordering::Relaxed), 0);
    for nth in 0..3 {
        assert_eq!(paced.next().await, Some(nth));
        assert_eq!(taken.load(Ordering::Relaxed), nth as usize + 1);
    }
    for _ in 0..10 {
        assert!(poll!(paced.next()).is_pending());
    }
    assert_eq!(taken.load(Ordering::Relaxed), 4);
    assert_eq!(paced.size_hint(), (0, Some(7)));
    assert_eq!(
        format!("{paced:?}"),
        "PacedStream { paced: PacedStreamBy { holds_an_item: true, .. }, .. }"
    );

    // A waiting item keeps its place in line until the stream is dropped.
    let mut behind = pin!(pacer.until_ready());
    assert!(poll!(behind.as_mut()).is_pending());
    time::sleep(millis(100)).await;
    assert!(poll!(behind.as_mut()).is_pending());
    drop(paced);
    assert!(poll!(behind.as_mut()).is_ready());
}

#[tokio::test(start_paused = true)]
async fn the_parts_are_the_rest_and_the_item_that_waited() {
    let pacer = Pacer::with_clock(even(), TokioClock::new());
    let mut paced = pacer.stream(stream::iter(0..5));
    assert_eq!(paced.next().await, Some(0));
    assert!(poll!(paced.next()).is_pending());
    let (rest, held) = paced.into_parts();
    assert_eq!(held, Some(1));
    assert_eq!(rest.collect::<Vec<_>>().await, [2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn items_have_costs_and_an_item_that_can_never_pass_is_returned() {
    let pacer = Pacer::with_clock(TokenBucket::per_second(10).burst(5), Paused::new());
    let sizes = stream::iter([5, 2, 6, 3, 1]);
    let paced = pacer.stream_by(sizes, |size| cost(*size));
    let items = timed(paced.map(|item| {
        item.map_err(|never| {
            assert_eq!((never.cost(), never.limit()), (cost(6), Some(5)));
            never.into_item()
        })
    }));
    // The item of 6 fails when its turn comes, and takes no time.
    assert_eq!(
        items.await,
        [
            (Ok(5), 0),
            (Ok(2), 200),
            (Err(6), 200),
            (Ok(3), 500),
            (Ok(1), 600)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_waiting_item_counts_in_the_size_hint() {
    let pacer = Pacer::with_clock(even(), TokioClock::new());
    let mut paced = pacer.stream_by(stream::iter(0..4), |_| cost(1));
    assert_eq!(paced.size_hint(), (4, Some(4)));
    assert_eq!(paced.next().await.unwrap().unwrap(), 0);
    assert!(poll!(paced.next()).is_pending());
    assert_eq!(paced.size_hint(), (3, Some(3)));
    let (rest, held) = paced.into_parts();
    assert_eq!((rest.count().await, held), (2, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_budget_ends_the_stream_and_keeps_the_rest() {
    let pacer = Pacer::with_clock(Lifetime(2), TokioClock::new());
    let mut paced = pacer.stream(stream::iter(0..5));
    for expected in [Some(0), Some(1), None, None] {
        assert_eq!(paced.next().await, expected);
    }
    assert_eq!(paced.size_hint(), (0, Some(2)));
    let (rest, held) = paced.into_parts();
    assert_eq!(held, Some(2));
    assert_eq!(rest.collect::<Vec<_>>().await, [3, 4]);
}

#[tokio::test(start_paused = true)]
async fn streams_share_a_pacer_by_turns() {
    let pacer = Pacer::with_clock(even(), Paused::new());
    let tagged = |tag| pacer.stream(stream::repeat(tag).take(4));
    let both = stream::select(tagged('a'), tagged('b'));
    let items = timed(both).await;
    let order: String = items.iter().map(|(tag, _)| tag).collect();
    let instants: Vec<_> = items.iter().map(|(_, at)| *at).collect();
    assert_eq!(order, "abababab");
    assert_eq!(instants, [0, 100, 200, 300, 400, 500, 600, 700]);
}

#[test]
fn a_paced_stream_can_be_sent() {
    fn sent<S: Send>(stream: S) -> S {
        stream
    }
    let pacer = Pacer::new(TokenBucket::per_second(1));
    drop(sent(pacer.stream(stream::iter(0..1))));
    drop(sent(pacer.stream_by(stream::iter(0..1), |_| cost(1))));
}
