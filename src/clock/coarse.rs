//! The clock that busy threads read from memory.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use super::{
    Clock, SystemClock, Timestamp,
    shown::{self, Seen, Shown},
};

/// [`SystemClock`]'s time, up to [`RESOLUTION`](Self::RESOLUTION) late, for the price of a load.
///
/// For a local store whose threads decide so often that reading the time is much of it. Instead of
/// the processor's counter, a decision reads a word that a thread of this crate rewrites every
/// millisecond. A reading then costs a ninth; a whole decision on a known key about a fifth less.
///
/// # Error
///
/// This clock is never ahead of `SystemClock`, save for the tens of nanoseconds by which the
/// counters of two cores differ. It lags by 0 to [`RESOLUTION`](Self::RESOLUTION), now more and now
/// less, so **an interval may come out that much too short or too long**:
///
/// - `retry_after` is a promise by *this* clock. A client that waits exactly so long by an exact
///   one may be refused once more, with the rest, up to `RESOLUTION`, as the new `retry_after`.
///   One that waits `retry_after` and `RESOLUTION` finds the promise kept.
/// - In a stretch of exact time, up to what the rule refills in one `RESOLUTION` may be admitted
///   beyond the rule: at 1000/s, two requests. Errors do not add up: twice the stretch, the same two.
/// - Windows of the calendar begin and end up to `RESOLUTION` late.
///
/// No operating system promises when a thread runs. So each thread compares every 64th of its
/// readings with `SystemClock`, and that one never lags by more than `RESOLUTION`. Where it finds
/// more, **all threads read the exact time** until the updater is back. At worst, then, 63 readings
/// in a row on each thread lag by as long as the updater was kept from running.
///
/// # The updater
///
/// The first value of this type in a process starts the one thread, `tollgate-clock`; all values
/// share it and tell the same time. There is nothing to run, to stop or to keep alive:
///
/// - It wakes every millisecond only while some thread reads this clock 2000 times a second or more.
///   Else it goes to sleep after 32 to 64 more of them, and every reading is exact. So it sleeps
///   too when the last value was dropped; it ends with the process.
/// - Awake, it takes 1 to 2 % of a processor.
/// - Where no thread can be started, every reading is exact.
/// - A process that was forked without `exec` has no updater. Each thread there notices as above.
///
/// ```
/// use tollgate::{TokenBucket, clock::{Clock, CoarseClock, SystemClock}, store::{Local, LocalBuilder}};
///
/// let clock = CoarseClock::new();
/// let before = clock.now();
/// assert!(clock.now() >= before);
///
/// // A thread that reads seldom reads the exact time.
/// let exact = SystemClock::new().now();
/// assert!(exact.saturating_since(CoarseClock::new().now()) <= CoarseClock::RESOLUTION);
///
/// let store: Local<TokenBucket, CoarseClock> = LocalBuilder::new().clock(clock).build();
/// assert_eq!(store.stats().keys, 0);
/// ```
#[derive(Clone, Copy)]
pub struct CoarseClock {
    shared: &'static Shown<SystemClock>,
}

impl CoarseClock {
    /// The most that this clock lags behind [`SystemClock`] while its updater runs: two milliseconds.
    pub const RESOLUTION: Duration = Duration::from_nanos(shown::RESOLUTION);

    /// The coarse clock of this process. The first one starts the updater.
    pub fn new() -> Self {
        static SHARED: OnceLock<Arc<Shown<SystemClock>>> = OnceLock::new();
        Self {
            shared: SHARED.get_or_init(|| {
                let shared = Arc::new(Shown::new(SystemClock::new()));
                let of_the_thread = Arc::clone(&shared);
                let updater = thread::Builder::new()
                    .name("tollgate-clock".to_owned())
                    .spawn(move || of_the_thread.update());
                // Without a thread nothing is ever shown, and every reading is exact.
                if let Ok(updater) = updater {
                    shared.updated_by(updater.thread().clone());
                }
                shared
            }),
        }
    }
}

impl Default for CoarseClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CoarseClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoarseClock").finish_non_exhaustive()
    }
}

impl Clock for CoarseClock {
    #[inline]
    fn now(&self) -> Timestamp {
        thread_local! {
            static SEEN: Seen = const { Seen::new() };
        }
        let nanos = SEEN.try_with(|seen| self.shared.now(seen));
        // A thread that is ending may have lost what it has seen.
        Timestamp::from_nanos(nanos.unwrap_or_else(|_| self.shared.exact()))
    }

    /// `true`: each thread remembers the latest time it was told, and is told nothing earlier.
    #[inline]
    fn is_monotone(&self) -> bool {
        true
    }
}
