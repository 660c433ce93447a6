//! The bounds of reading the bodies of refused requests, in paused time.

use std::{convert::Infallible, future::pending, task::Poll, time::Duration};

use axum::body::{Body, Bytes};
use futures_util::{Stream, StreamExt, stream};
use http::{Request, Response, StatusCode};
use tokio::{
    sync::oneshot,
    task::yield_now,
    time::{Instant, advance, sleep},
};
use tollgate::{
    Outcome,
    respond::{DrainBodies, DrainStats, Http, Refusal, Respond},
};

const MIB: usize = 1 << 20;

pub(super) fn respond() -> DrainBodies {
    Http::new().drain_bodies()
}

/// Refuses a request, and returns the status.
pub(super) fn refuse<B>(respond: &DrainBodies, request: Request<B>) -> StatusCode
where
    DrainBodies: Respond<Request<B>, Response<String>, Infallible>,
{
    let response = respond.refuse(request, Refusal::new(Outcome::new()));
    let Ok(response) = response;
    response.status()
}

/// Resolves when a body is dropped.
type Dropped = oneshot::Receiver<Infallible>;

/// Returns a request with this body.
fn upload(frames: impl Stream<Item = Bytes> + Send + 'static) -> (Request<Body>, Dropped) {
    let (held, dropped) = oneshot::channel::<Infallible>();
    let frames = frames.map(move |frame| {
        let _held = &held;
        Ok::<_, Infallible>(frame)
    });
    (Request::new(Body::from_stream(frames)), dropped)
}

/// Yields a frame of this many bytes after each such time, for ever.
fn every(time: Duration, bytes: usize) -> impl Stream<Item = Bytes> {
    stream::repeat(()).then(move |()| async move {
        sleep(time).await;
        Bytes::from(vec![0; bytes])
    })
}

fn silence() -> impl Stream<Item = Bytes> {
    stream::once(pending())
}

/// Returns the time until a body was dropped. Paused time goes to the next timer once all tasks
/// wait.
async fn time_until(dropped: Dropped) -> Duration {
    let start = Instant::now();
    dropped.await.unwrap_err();
    start.elapsed()
}

/// Lets the other tasks run, so that a body that was dropped is counted.
async fn settled(respond: &DrainBodies) -> DrainStats {
    for _ in 0..1_000 {
        if respond.stats().in_flight == 0 {
            break;
        }
        yield_now().await;
    }
    respond.stats()
}

#[track_caller]
fn assert_sum(stats: DrainStats) {
    let ended = stats.finished + stats.failed + stats.given_up;
    assert_eq!(stats.started, ended + stats.in_flight, "{stats:?}");
}

/// Reads one body, and returns the time until it was dropped, and the counters.
async fn read(frames: impl Stream<Item = Bytes> + Send + 'static) -> (Duration, DrainStats) {
    let respond = respond();
    let (request, dropped) = upload(frames);
    refuse(&respond, request);
    let time = time_until(dropped).await;
    let stats = settled(&respond).await;
    assert_eq!((stats.started, stats.in_flight), (1, 0));
    assert_sum(stats);
    (time, stats)
}

#[tokio::test(start_paused = true)]
async fn a_body_is_read_for_thirty_seconds() {
    let second = Duration::from_secs(1);
    let (time, stats) = read(every(second, 1)).await;
    assert_eq!((time, stats.given_up), (30 * second, 1));
    // One that ends before is finished.
    let (time, stats) = read(every(second, 1).take(29)).await;
    assert_eq!((time, stats.finished), (29 * second, 1));
}

#[tokio::test(start_paused = true)]
async fn a_body_without_a_byte_is_read_for_five_seconds() {
    let second = Duration::from_secs(1);
    let (time, stats) = read(silence()).await;
    assert_eq!((time, stats.given_up), (5 * second, 1));
    // After the last byte, too, and bytes before it prolong it.
    let (time, stats) = read(every(4 * second, 1).take(2).chain(silence())).await;
    assert_eq!((time, stats.given_up), (13 * second, 1));
    // Frames without bytes do not.
    let (time, stats) = read(every(second, 0)).await;
    assert_eq!((time, stats.given_up), (5 * second, 1));
}

#[tokio::test(start_paused = true)]
async fn a_body_is_read_up_to_32_mib() {
    let frames = |count| every(Duration::ZERO, MIB).take(count);
    let (_, stats) = read(frames(32)).await;
    assert_eq!(stats.finished, 1);
    let more = stream::iter([Bytes::from_static(b"1")]).chain(silence());
    let (time, stats) = read(frames(32).chain(more)).await;
    assert_eq!(stats.given_up, 1);
    // The byte itself, not the silence after it.
    assert!(time < Duration::from_secs(5), "{time:?}");
    // Bytes are no reason to read for longer.
    let (time, stats) = read(every(Duration::from_secs(1), MIB)).await;
    assert_eq!((time.as_secs(), stats.given_up), (30, 1));
}

/// Such a body must neither keep the thread, nor the deadlines from being noticed.
#[tokio::test(start_paused = true)]
async fn a_body_that_is_always_ready_ends_at_the_deadlines() {
    for (frame, limit) in [(&b""[..], 5), (b"1", 30)] {
        let respond = respond();
        let frames = stream::repeat(Bytes::from_static(frame));
        let (request, mut dropped) = upload(frames);
        refuse(&respond, request);
        // Its deadlines begin when it is polled first.
        yield_now().await;
        for _ in 1..limit {
            advance(Duration::from_secs(1)).await;
        }
        assert!(dropped.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        advance(Duration::from_secs(1)).await;
        let stats = settled(&respond).await;
        assert_eq!((stats.given_up, stats.in_flight), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn of_257_bodies_one_is_dropped_unread() {
    let respond = respond();
    let second = Duration::from_secs(1);
    let mut all = Vec::new();
    for count in 1..=256 {
        let (request, dropped) = upload(every(second, 1));
        // Clones share the bound.
        refuse(&respond.clone(), request);
        all.push(dropped);
        assert_eq!(respond.stats().in_flight, count);
    }
    for crowded in 1..=3 {
        let frames = stream::iter([()]).map(|()| panic!("read beyond the bound"));
        let (request, dropped) = upload(frames);
        // It is answered all the same.
        assert_eq!(refuse(&respond, request), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(time_until(dropped).await, Duration::ZERO);
        assert_eq!(respond.stats().crowded, crowded);
    }
    assert_eq!(respond.stats().in_flight, 256);
    // Clients that send for ever hold the places for 30 s.
    for dropped in all {
        dropped.await.unwrap_err();
    }
    let stats = settled(&respond).await;
    assert_eq!(
        (stats.started, stats.given_up, stats.crowded),
        (256, 256, 3)
    );
    // Then they are free.
    let (request, _) = upload(stream::iter([Bytes::from_static(b"1")]));
    refuse(&respond, request);
    assert_eq!(settled(&respond).await.finished, 1);
}

/// More clients than places, which come again as soon as they are cut off.
#[tokio::test(start_paused = true)]
async fn endless_uploads_never_hold_more_than_256_places() {
    let respond = respond();
    for _ in 0..2_000 {
        for _ in 0..4 {
            refuse(&respond, upload(every(Duration::from_secs(1), 1)).0);
        }
        assert!(respond.stats().in_flight <= 256);
        sleep(Duration::from_millis(100)).await;
    }
    sleep(Duration::from_secs(30)).await;
    let stats = respond.stats();
    // In 200 s: a first set, and one after each 30 s.
    assert_eq!((stats.started, stats.given_up), (7 * 256, 7 * 256));
    assert_eq!(stats.crowded, 8_000 - 7 * 256);
    assert_eq!(stats.in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn errors_and_panics_free_the_place() {
    let respond = respond();
    let fails = stream::iter([Ok("1"), Err("reset by peer")]);
    refuse(&respond, Request::new(Body::from_stream(fails)));
    let stats = settled(&respond).await;
    assert_eq!((stats.failed, stats.finished, stats.in_flight), (1, 0, 0));

    let (request, dropped) = upload(stream::once(async { panic!("a body that panics") }));
    refuse(&respond, request);
    dropped.await.unwrap_err();
    let stats = settled(&respond).await;
    assert_eq!((stats.failed, stats.started), (2, 2));
    assert_sum(stats);
}

#[test]
fn a_runtime_that_shuts_down_frees_the_place() {
    let respond = respond();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    let (polled, was_polled) = oneshot::channel();
    let mut polled = Some(polled);
    let (request, mut dropped) = upload(stream::poll_fn(move |_| {
        let _ = polled.take().map(|polled| polled.send(()));
        Poll::Pending
    }));
    // Another one is dropped before it was polled.
    let (other, mut other_dropped) = upload(silence());
    runtime.block_on(async {
        refuse(&respond, request);
        was_polled.await.unwrap();
    });
    let entered = runtime.enter();
    refuse(&respond, other);
    drop(entered);
    assert_eq!(respond.stats().in_flight, 2);
    drop(runtime);
    for dropped in [&mut dropped, &mut other_dropped] {
        assert_eq!(
            dropped.try_recv(),
            Err(oneshot::error::TryRecvError::Closed)
        );
    }
    let stats = respond.stats();
    assert_eq!((stats.failed, stats.in_flight), (2, 0));
    assert_sum(stats);
}

#[test]
fn without_a_runtime_bodies_are_dropped() {
    let respond = respond();
    let (request, mut dropped) = upload(stream::poll_fn(|_| panic!("read without a runtime")));
    assert_eq!(refuse(&respond, request), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        dropped.try_recv(),
        Err(oneshot::error::TryRecvError::Closed)
    );
    let stats = respond.stats();
    assert_eq!((stats.no_runtime, stats.started), (1, 0));
}

/// The response does not wait for the body.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_there_before_the_body_is_read() {
    let respond = respond();
    let start = Instant::now();
    let (request, dropped) = upload(every(Duration::from_secs(1), 1).take(3));
    assert_eq!(refuse(&respond, request), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(time_until(dropped).await, Duration::from_secs(3));
}
