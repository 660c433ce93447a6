//! A time that one thread shows and others read, and what they do when it does not.

use std::{
    cell::Cell,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, Thread},
    time::Duration,
};

use super::Clock;

/// The greatest lag that a reader who compares puts up with, in nanoseconds. Two ticks: a thread
/// that should wake up now may do so a little late.
pub(super) const RESOLUTION: u64 = 2_000_000;

const TICK: Duration = Duration::from_millis(1);

/// How many ticks the updater stays awake for a wish.
const TICKS: u32 = 32;

/// A reader who makes [`EVERY`] readings in this many nanoseconds wishes for the updater.
const BUSY: u64 = TICKS as u64 * 1_000_000;

/// Each reader compares every so manieth reading with the exact time.
const EVERY: u32 = 64;

/// What is shown while nobody promises to replace it soon.
const NOTHING: u64 = 0;

/// A time that lags behind an exact clock.
///
/// Each atomic is one word that says all it has to, so everything is `Relaxed`: what a thread
/// must not see fall, it remembers itself, in [`Seen`].
#[repr(align(64))]
pub(super) struct Shown<C> {
    /// Nanoseconds since the Unix epoch, or [`NOTHING`].
    nanos: AtomicU64,
    /// Whether some reader is busy enough for the updater to be awake.
    wished: AtomicBool,
    updater: OnceLock<Thread>,
    clock: C,
}

/// What one thread remembers of the one [`Shown`] that it reads.
pub(super) struct Seen {
    /// The latest time it was told.
    newest: Cell<u64>,
    /// Readings before the next comparison.
    left: Cell<u32>,
    /// The exact time of the last comparison.
    compared: Cell<u64>,
}

impl Seen {
    pub(super) const fn new() -> Self {
        Self {
            newest: Cell::new(0),
            left: Cell::new(0),
            compared: Cell::new(0),
        }
    }
}

impl<C: Clock> Shown<C> {
    pub(super) fn new(clock: C) -> Self {
        Self {
            nanos: AtomicU64::new(NOTHING),
            wished: AtomicBool::new(false),
            updater: OnceLock::new(),
            clock,
        }
    }

    /// Names the thread that is in [`update`](Self::update), to be woken.
    pub(super) fn updated_by(&self, updater: Thread) {
        // There is one updater, so there is no second name to refuse.
        let _ = self.updater.set(updater);
    }

    /// The exact time in nanoseconds, never [`NOTHING`].
    pub(super) fn exact(&self) -> u64 {
        self.clock.now().as_nanos().max(NOTHING + 1)
    }

    #[inline]
    pub(super) fn now(&self, seen: &Seen) -> u64 {
        let shown = self.nanos.load(Relaxed);
        let left = seen.left.get();
        // One comparison for "something is shown" and "time does not fall".
        if left > 0 && shown >= seen.newest.get() {
            seen.left.set(left - 1);
            seen.newest.set(shown);
            return shown;
        }
        self.compare(seen, shown)
    }

    #[cold]
    fn compare(&self, seen: &Seen, shown: u64) -> u64 {
        let exact = self.exact();
        if let Some(left) = seen.left.get().checked_sub(1) {
            seen.left.set(left);
        } else {
            seen.left.set(EVERY - 1);
            if exact.saturating_sub(seen.compared.replace(exact)) < BUSY {
                self.wish();
            }
        }
        let late = exact.saturating_sub(shown) > RESOLUTION;
        if late && shown != NOTHING {
            // Exact time for everybody, unless the updater is back already: then this fails.
            let _ = self
                .nanos
                .compare_exchange(shown, NOTHING, Relaxed, Relaxed);
        }
        let now = if late || shown == NOTHING {
            exact
        } else {
            shown
        };
        let newest = seen.newest.get().max(now);
        seen.newest.set(newest);
        newest
    }

    /// Wakes the updater, or keeps it awake.
    fn wish(&self) {
        // Looked at first, so that the line is written at most once in a span.
        if !self.wished.load(Relaxed)
            && !self.wished.swap(true, Relaxed)
            && let Some(updater) = self.updater.get()
        {
            updater.unpark();
        }
    }

    /// Shows the time while that is wished for. The life of the updater, which ends with the process.
    pub(super) fn update(&self) {
        loop {
            self.show(thread::sleep);
            // A wish comes before its waking, which `park` remembers: none is slept through.
            while !self.wished.load(Relaxed) {
                thread::park();
            }
        }
    }

    /// Shows the time tick by tick until nobody has wished for it in a whole span of ticks.
    fn show(&self, sleep: impl Fn(Duration)) {
        while self.wished.swap(false, Relaxed) {
            for _ in 0..TICKS {
                self.nanos.store(self.exact(), Relaxed);
                sleep(TICK);
            }
        }
        self.nanos.store(NOTHING, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::clock::{ManualClock, Timestamp};

    const START: u64 = 1_000_000_000_000;
    const LATE: Duration = Duration::from_nanos(RESOLUTION + 1);

    fn shown() -> (ManualClock, Shown<ManualClock>) {
        let clock = ManualClock::new(Timestamp::from_nanos(START));
        (clock.clone(), Shown::new(clock))
    }

    #[test]
    fn is_exact_while_nothing_is_shown() {
        let (clock, shown) = shown();
        let seen = Seen::new();
        for n in 1..=1000 {
            clock.advance(Duration::from_nanos(1));
            assert_eq!(shown.now(&seen), START + n);
        }
    }

    #[test]
    fn is_exact_from_the_first_nanosecond_on() {
        let clock = ManualClock::new(Timestamp::default());
        let shown = Shown::new(clock.clone());
        let seen = Seen::new();
        assert_eq!(shown.now(&seen), 1);
        clock.advance(Duration::from_nanos(5));
        assert_eq!(shown.now(&seen), 5);
    }

    #[test]
    fn lags_while_something_is_shown_and_a_comparison_ends_a_great_lag_for_all() {
        let (clock, shown) = shown();
        let (seen, other) = (Seen::new(), Seen::new());
        shown.nanos.store(START, Relaxed);
        clock.advance(Duration::from_nanos(RESOLUTION));
        for _ in 0..1000 {
            assert_eq!(shown.now(&seen), START, "as late as may be");
        }
        assert_eq!(shown.now(&other), START);
        clock.advance(LATE);
        let lagging = (0..EVERY).take_while(|_| shown.now(&seen) == START).count();
        assert!(lagging < EVERY as usize);
        assert_eq!(shown.now(&seen), clock.now().as_nanos());
        assert_eq!(shown.now(&other), clock.now().as_nanos());
        // The updater is back.
        clock.advance(LATE);
        let now = clock.now().as_nanos();
        shown.nanos.store(now, Relaxed);
        clock.advance(Duration::from_nanos(7));
        assert_eq!(shown.now(&other), now);
    }

    #[test]
    fn the_updater_is_wished_for_by_the_busy_alone() {
        let (clock, shown) = shown();
        let seen = Seen::new();
        let read = |pause| {
            for _ in 0..2 * EVERY {
                clock.advance(Duration::from_nanos(pause));
                shown.now(&seen);
            }
            shown.wished.swap(false, Relaxed)
        };
        assert!(!read(BUSY / u64::from(EVERY)));
        assert!(read(BUSY / u64::from(EVERY) - 1));
        assert!(!read(BUSY));
    }

    #[test]
    fn the_updater_is_awake_while_wished_for() {
        let (clock, shown) = shown();
        let ticks = AtomicU32::new(0);
        // Wishes during the first three spans.
        shown.wished.store(true, Relaxed);
        shown.show(|tick| {
            let shows = shown.nanos.load(Relaxed);
            assert_eq!(shows, clock.now().as_nanos());
            clock.advance(tick);
            let ticks = ticks.fetch_add(1, Relaxed);
            shown.wished.store(ticks < 2 * TICKS, Relaxed);
        });
        assert_eq!(ticks.load(Relaxed), 3 * TICKS);
        assert_eq!(shown.nanos.load(Relaxed), NOTHING);
        shown.show(|_| panic!("nobody wished for it"));
    }

    #[test]
    fn wishes_wake_the_thread_again_and_again() {
        let shown = Box::leak(Box::new(Shown::new(crate::clock::SystemClock::new())));
        let shown = &*shown;
        let updater = thread::spawn(|| shown.update());
        shown.updated_by(updater.thread().clone());
        let seen = Seen::new();
        let wait_until = |shows: bool, act: &dyn Fn()| {
            for _ in 0..10_000 {
                act();
                if (shown.nanos.load(Relaxed) != NOTHING) == shows {
                    return;
                }
                thread::sleep(Duration::from_millis(1));
            }
            panic!("shows something: {}", !shows);
        };
        for _ in 0..3 {
            wait_until(true, &|| {
                for _ in 0..2 * EVERY {
                    shown.now(&seen);
                }
            });
            wait_until(false, &|| {});
        }
    }

    /// A clock that swings from call to call.
    struct Swinging(AtomicU64);

    impl Clock for Swinging {
        fn now(&self) -> Timestamp {
            let call = self.0.fetch_add(1, Relaxed);
            Timestamp::from_nanos(START + 3 * call + (call % 5) * RESOLUTION)
        }
    }

    #[test]
    fn no_thread_sees_time_fall() {
        let shown = Shown::new(Swinging(AtomicU64::new(0)));
        let readers = AtomicU32::new(3);
        let falls = thread::scope(|scope| {
            let read = || {
                let seen = Seen::new();
                let mut newest = 0;
                let mut falls = 0;
                for _ in 0..300_000 {
                    let now = shown.now(&seen);
                    falls += u32::from(now < newest);
                    newest = now;
                }
                readers.fetch_sub(1, Relaxed);
                falls
            };
            let all = [(); 3].map(|()| scope.spawn(read));
            while readers.load(Relaxed) > 0 {
                shown.wished.store(true, Relaxed);
                shown.show(|_| thread::yield_now());
            }
            all.map(|reader| reader.join().unwrap())
        });
        assert_eq!(falls, [0; 3]);
    }
}
