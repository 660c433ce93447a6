//! Simulated time.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{self, AtomicU64},
    },
    task::{Poll, Waker},
    time::Duration,
};

use tokio::runtime::Builder;
use tollgate::Timestamp;

/// Nanoseconds since the beginning of the simulation.
pub type Instant = u64;

/// The Unix time of the beginning: 2026-01-01, 00:00:00 UTC.
const BEGINNING: u64 = 1_767_225_600_000_000_000;

/// Locks what a panic in a test may have left.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Simulated time in nanoseconds. It stands still while any task can go on, and then jumps to the
/// next event.
///
/// Not the paused time of tokio, whose timers have a resolution of a millisecond: a node decides
/// many calls in that time. Code that waits for these timers needs
/// [`run_with_timers`](Self::run_with_timers).
#[derive(Clone, Default)]
pub(crate) struct Timeline(Arc<Inner>);

#[derive(Default)]
struct Inner {
    now: AtomicU64,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    events: BinaryHeap<Reverse<Event>>,
    /// Events of one instant happen in the order in which they were made.
    made: u64,
    main: Option<Waker>,
}

struct Event {
    at: Instant,
    order: u64,
    waker: Waker,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl Timeline {
    pub(crate) fn now(&self) -> Instant {
        self.0.now.load(atomic::Ordering::Relaxed)
    }

    /// Returns the time on a clock with an offset in nanoseconds, which is fast by millionths.
    pub(crate) fn clock(&self, offset: i64, drift: i64) -> Timestamp {
        let now = i128::from(self.now());
        let nanos =
            i128::from(BEGINNING) + i128::from(offset) + now + now * i128::from(drift) / 1_000_000;
        Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// Returns the timestamp of an instant on an exact clock.
    pub(crate) fn timestamp(at: Instant) -> Timestamp {
        Timestamp::from_nanos(BEGINNING + at)
    }

    /// Returns the instant of a timestamp of an exact clock.
    pub(crate) fn instant(at: Timestamp) -> Instant {
        at.as_nanos().saturating_sub(BEGINNING)
    }

    /// Waits until an instant.
    pub(crate) async fn until(&self, at: Instant) {
        poll_fn(|context| {
            if self.now() >= at {
                return Poll::Ready(());
            }
            let mut queue = lock(&self.0.queue);
            queue.made += 1;
            let (order, waker) = (queue.made, context.waker().clone());
            queue.events.push(Reverse(Event { at, order, waker }));
            Poll::Pending
        })
        .await;
    }

    pub(crate) async fn sleep(&self, nanos: u64) {
        self.until(self.now().saturating_add(nanos)).await;
    }

    /// Runs a future, and the tasks that it spawns, to its end.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> T {
        self.run_by(&mut Builder::new_current_thread(), future)
    }

    /// Runs a future as [`run`](Self::run) does, and lets timers of tokio fire in simulated time.
    /// Their clock goes on by whole milliseconds, so they fire up to a millisecond early.
    pub(crate) fn run_with_timers<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let time = self.clone();
        let with_ticks = async move {
            tokio::spawn(async move { time.tick().await });
            future.await
        };
        let mut builder = Builder::new_current_thread();
        self.run_by(builder.enable_time().start_paused(true), with_ticks)
    }

    /// Advances the clock of tokio by a millisecond in each.
    async fn tick(&self) {
        loop {
            self.sleep(1_000_000).await;
            // It yields, so timers fire before time goes on.
            tokio::time::advance(Duration::from_millis(1)).await;
        }
    }

    fn run_by<T: Send + 'static>(
        &self,
        builder: &mut Builder,
        future: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let time = self.clone();
        let runtime = builder
            .on_thread_park(move || time.jump())
            .build()
            .expect("a runtime without I/O");
        let mut main = runtime.spawn(future);
        let to_end = poll_fn(|context| {
            lock(&self.0.queue).main = Some(context.waker().clone());
            Pin::new(&mut main).poll(context)
        });
        runtime.block_on(to_end).expect("no panic")
    }

    /// Goes to the next event. Called when no task can go on.
    fn jump(&self) {
        let (event, main) = {
            let mut queue = lock(&self.0.queue);
            (queue.events.pop(), queue.main.clone())
        };
        if let (Some(Reverse(event)), Some(main)) = (event, main) {
            self.0.now.fetch_max(event.at, atomic::Ordering::Relaxed);
            event.waker.wake();
            // Nobody may wait for the event any more, and the thread must not sleep while there are
            // others.
            main.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_happen_in_order_to_the_nanosecond() {
        let time = Timeline::default();
        let happened = Arc::new(Mutex::new(Vec::new()));
        let (of_tasks, list) = (time.clone(), Arc::clone(&happened));
        time.run(async move {
            for at in [5, 3, 3, 1_000_000_007] {
                let (time, list) = (of_tasks.clone(), Arc::clone(&list));
                tokio::spawn(async move {
                    time.until(at).await;
                    lock(&list).push((at, time.now()));
                });
            }
            of_tasks.sleep(2_000_000_000).await;
        });
        let expected = [(3, 3), (3, 3), (5, 5), (1_000_000_007, 1_000_000_007)];
        assert_eq!(*lock(&happened), expected);
        assert_eq!(time.now(), 2_000_000_000);
    }

    /// Between other events that are nanoseconds apart, and without any.
    #[test]
    fn timers_of_tokio_fire_at_their_millisecond() {
        for gap in [700, 50_000_000] {
            let time = Timeline::default();
            let of_tasks = time.clone();
            let fired = time.run_with_timers(async move {
                let others = of_tasks.clone();
                tokio::spawn(async move {
                    while others.now() < 20_000_000 {
                        others.sleep(gap).await;
                    }
                });
                let mut fired = Vec::new();
                for wait in [3, 1, 7] {
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                    fired.push(of_tasks.now());
                }
                fired
            });
            assert_eq!(fired, [3_000_000, 4_000_000, 11_000_000]);
        }
    }
}
