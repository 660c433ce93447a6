//! The default clock: that of this process, slewed to Unix time.
//!
//! There is no coarse clock. One that a background thread writes each millisecond saves half of a
//! decision's 12 to 23 ns on a hot key; a request through the layer takes 84 ns or more. The price
//! would be a thread, an error of up to 2 ms, and a protocol for a thread that sleeps, starves, or
//! is lost in a `fork`. Users who need it write a `Clock` of ten lines; its page has one.

use std::{
    fmt,
    sync::{
        Mutex, OnceLock, TryLockError,
        atomic::{AtomicU64, Ordering, fence},
    },
};

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
use std::time::{Instant, SystemTime};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use web_time::{Instant, SystemTime};

use super::{
    Clock, Timestamp,
    slew::{self, Curve, CurveRules, Sample, Segment},
};

/// The clock of this process, and the default of local stores: fast, monotonic, near Unix time.
///
/// It reads the processor's time stamp counter if that is reliable, else the operating system's
/// monotonic clock, and starts at Unix time. About once a second, one caller compares it with Unix
/// time, and no other caller waits for that. All values of this type share one time. Creating or
/// copying one is free, except for the first one of a process, which calibrates the counter for up
/// to 0.2 s: create it at start-up.
///
/// # Accuracy
///
/// A difference from Unix time is slewed away: the clock runs up to 500 ppm (0.05 %) fast or slow
/// until they agree, half a millisecond per second.
///
/// - `retry_after` counts by *this* clock. A client that waits n seconds by its own clock may come
///   up to 0.05 % of n too early while this one is slewed slow (half a millisecond per second),
///   plus the difference of the two oscillators.
/// - While a difference lasts, calendar windows begin and end early or late by it. A calendar that
///   is set back by a minute is reached after 33 hours.
/// - If Unix time is ahead by more than a second, for example after the machine slept, the clock
///   jumps forward at the next comparison. It is never set back.
/// - No thread sees time fall. Two threads that read it at one moment may differ by some tens of
///   nanoseconds, as the counters of their cores do.
/// - A counter that restarts while the machine sleeps is detected at the next reading. Threads that
///   read it in the same microsecond may once see a time that is some seconds old.
/// - In the first second, the rate is that of the calibration. From then on it is measured against
///   the operating system's monotonic clock.
///
/// # Examples
///
/// ```
/// use tollgate::time::{Clock, SystemClock};
///
/// let clock = SystemClock::new();
/// let before = clock.now();
/// assert!(SystemClock::default().now() >= before);
/// ```
#[derive(Clone, Copy)]
pub struct SystemClock {
    shared: &'static SteeredClock<Machine>,
}

impl SystemClock {
    /// Returns the clock of this process.
    pub fn new() -> Self {
        static SHARED: OnceLock<SteeredClock<Machine>> = OnceLock::new();
        Self {
            shared: SHARED.get_or_init(|| SteeredClock::new(Machine::new())),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemClock").finish_non_exhaustive()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.shared.now())
    }

    #[inline]
    fn is_monotonic(&self) -> bool {
        true
    }
}

/// Returns the nanoseconds since the Unix epoch by the operating system, 0 to 2⁶³ − 1.
#[expect(clippy::disallowed_methods, reason = "a clock reads time")]
pub(super) fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos());
    u64::try_from(nanos).unwrap_or(u64::MAX).min(u64::MAX >> 1)
}

/// The clocks that a [`SteeredClock`] reads.
trait ClockSource {
    /// Reads the counter.
    fn reading(&self) -> u64;
    /// Returns nanoseconds per unit of the counter, with [`slew::POINT`] fractional bits.
    fn rate(&self) -> u64;
    /// Reads the counter and the slower clocks together.
    fn sample(&self) -> Sample;
}

/// The counter of the processor.
#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
struct ProcessorCounter(quanta::Clock);

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
impl ProcessorCounter {
    fn new() -> Self {
        Self(quanta::Clock::new())
    }

    #[inline]
    fn reading(&self) -> u64 {
        self.0.raw()
    }

    fn rate(&self) -> u64 {
        self.0.delta_as_nanos(0, 1 << slew::POINT).max(1)
    }
}

/// A counter of nanoseconds, where no other is.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
struct ProcessorCounter(Instant);

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
impl ProcessorCounter {
    #[expect(clippy::disallowed_methods, reason = "a clock reads time")]
    fn new() -> Self {
        Self(Instant::now())
    }

    fn reading(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn rate(&self) -> u64 {
        1 << slew::POINT
    }
}

/// The clocks of this machine.
struct Machine {
    counter: ProcessorCounter,
    origin: Instant,
}

impl Machine {
    #[expect(clippy::disallowed_methods, reason = "a clock reads time")]
    fn new() -> Self {
        Self {
            counter: ProcessorCounter::new(),
            origin: Instant::now(),
        }
    }

    fn sample_once(&self) -> Sample {
        let before = self.reading();
        let steady = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let unix = unix_nanos();
        let width = self.reading().saturating_sub(before);
        Sample {
            reading: before.saturating_add(width / 2),
            width,
            steady,
            unix,
        }
    }
}

impl ClockSource for Machine {
    #[inline]
    fn reading(&self) -> u64 {
        self.counter.reading()
    }

    fn rate(&self) -> u64 {
        self.counter.rate()
    }

    // The narrowest of three samples: a thread can be suspended between two readings.
    fn sample(&self) -> Sample {
        let again = || self.sample_once();
        let narrower = |a: Sample, b: Sample| if b.width < a.width { b } else { a };
        narrower(narrower(again(), again()), again())
    }
}

/// A clock that converts the readings of a counter into Unix time along a published
/// [curve](super::slew::Curve).
struct SteeredClock<S> {
    source: S,
    curves: CurveRules,
    published: Published,
    comparison: Mutex<Comparison>,
}

/// The data of the thread that compares the clocks.
struct Comparison {
    rate: u64,
    sample: Sample,
}

impl<S: ClockSource> SteeredClock<S> {
    fn new(source: S) -> Self {
        let (sample, rate) = (source.sample(), source.rate());
        let curves = CurveRules::new(rate);
        let curve = curves.start(sample.reading, sample.unix, rate);
        Self {
            source,
            curves,
            published: Published::new(&curve),
            comparison: Mutex::new(Comparison { rate, sample }),
        }
    }

    #[inline]
    fn now(&self) -> u64 {
        let Segment { begin, unix, slope } = self.published.last();
        let elapsed = self.source.reading().wrapping_sub(begin);
        // One branch for "not before the segment" and "no comparison due": an earlier reading wraps
        // around.
        if elapsed < self.curves.length {
            unix.saturating_add(slew::scale(elapsed, slope))
        } else {
            self.now_outside_segment()
        }
    }

    #[cold]
    fn now_outside_segment(&self) -> u64 {
        let curve = self.published.curve();
        if self.curves.is_due(&curve, self.source.reading()) {
            self.compare();
        }
        let curve = self.published.curve();
        self.curves.time(&curve, self.source.reading())
    }

    /// Compares the counter with Unix time and publishes the next curve, unless another thread does
    /// so now.
    fn compare(&self) {
        let mut comparison = match self.comparison.try_lock() {
            Ok(comparison) => comparison,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let curve = self.published.curve();
        let sample = self.source.sample();
        if !self.curves.is_due(&curve, sample.reading) {
            return;
        }
        comparison.rate = slew::rate_between(&comparison.sample, &sample, comparison.rate);
        comparison.sample = sample;
        let next = self
            .curves
            .next(&curve, sample.reading, sample.unix, comparison.rate);
        self.published.publish(&next);
    }
}

/// A curve that any number of threads read without waiting while one thread replaces it.
///
/// Generation g is stored in copy g mod 2, and the next curve is written to the other copy.
/// Invariants:
///
/// 1. Copy g mod 2 is complete before `generation` is g.
/// 2. It is overwritten only after `generation` was g + 1, so a reader that loads g
///    before and after the copy has loaded generation g and nothing else.
/// 3. A thread never sees generations fall, and curves only rise ([`super::slew`]): no thread
///    sees time fall, however late it reads the counter after the curve.
struct Published {
    generation: AtomicU64,
    copies: [CurveCopy; 2],
}

#[derive(Default)]
#[repr(align(64))]
struct CurveCopy {
    last: [AtomicU64; 3],
    first: [AtomicU64; 3],
}

impl Published {
    fn new(curve: &Curve) -> Self {
        let published = Self {
            generation: AtomicU64::new(0),
            copies: <[CurveCopy; 2]>::default(),
        };
        published.publish(curve);
        published
    }

    /// Returns the number of curves published so far.
    #[cfg(test)]
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    #[inline]
    fn last(&self) -> Segment {
        self.read(|copy| load(&copy.last))
    }

    fn curve(&self) -> Curve {
        self.read(|copy| Curve {
            first: load(&copy.first),
            last: load(&copy.last),
        })
    }

    #[inline]
    fn read<T>(&self, load: impl Fn(&CurveCopy) -> T) -> T {
        loop {
            // Acquire, with the Release store of this generation: invariant 1.
            let generation = self.generation.load(Ordering::Acquire);
            let loaded = load(&self.copies[(generation & 1) as usize]);
            // If a load above saw a later write, this fence meets the one before that write,
            // and the load below sees the generation stored earlier still: invariant 2.
            fence(Ordering::Acquire);
            // Relaxed: the fence orders it.
            if self.generation.load(Ordering::Relaxed) == generation {
                return loaded;
            }
        }
    }

    /// Replaces the curve. Callers must exclude each other.
    fn publish(&self, curve: &Curve) {
        // Relaxed: only callers write it, and their mutual exclusion orders them.
        let next = self.generation.load(Ordering::Relaxed).wrapping_add(1);
        let copy = &self.copies[(next & 1) as usize];
        // The store of the present generation happens before the writes below: invariant 2.
        fence(Ordering::Release);
        store(&copy.first, curve.first);
        store(&copy.last, curve.last);
        // Release: the writes above happen before: invariant 1.
        self.generation.store(next, Ordering::Release);
    }
}

/// Loads a segment. Relaxed: [`Published::read`] checks that the words belong together.
#[inline]
fn load(words: &[AtomicU64; 3]) -> Segment {
    let [begin, unix, slope] = words;
    Segment {
        begin: begin.load(Ordering::Relaxed),
        unix: unix.load(Ordering::Relaxed),
        slope: slope.load(Ordering::Relaxed),
    }
}

/// Stores a segment. Relaxed: [`Published::publish`] orders it.
fn store(words: &[AtomicU64; 3], segment: Segment) {
    let [begin, unix, slope] = words;
    begin.store(segment.begin, Ordering::Relaxed);
    unix.store(segment.unix, Ordering::Relaxed);
    slope.store(segment.slope, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicU64, Ordering},
        thread,
        time::Duration,
    };

    use super::*;
    use crate::time::slew::Curve;

    /// The machine's counter with a rate that is 10 000 times too high and a Unix time that
    /// swings, for thousands of comparisons in a third of a second.
    struct Wild {
        machine: Machine,
        asked: AtomicU64,
    }

    impl ClockSource for Wild {
        fn reading(&self) -> u64 {
            self.machine.reading()
        }

        fn rate(&self) -> u64 {
            self.machine.rate() * 10_000
        }

        fn sample(&self) -> Sample {
            let mut sample = self.machine.sample_once();
            let swing = match self.asked.fetch_add(1, Ordering::Relaxed) % 7 {
                0 | 1 => 40_000_000_000,
                2 | 3 => 0,
                4 => 20_000_000_500,
                _ => 19_999_000_000,
            };
            sample.steady *= 10_000;
            sample.unix = sample.steady + (1 << 60) + swing;
            sample.width = 0;
            sample
        }
    }

    #[test]
    fn no_thread_sees_time_fall() {
        let clock = SteeredClock::new(Wild {
            machine: Machine::new(),
            asked: AtomicU64::new(0),
        });
        let stop = AtomicBool::new(false);
        let newest = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut seen = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let now = clock.now();
                        assert!(now >= seen, "back by {} ns", seen - now);
                        seen = now;
                        newest.fetch_max(now, Ordering::Relaxed);
                    }
                });
            }
            thread::sleep(Duration::from_millis(300));
            stop.store(true, Ordering::Relaxed);
        });
        assert!(newest.load(Ordering::Relaxed) > 1 << 60);
        assert!(clock.source.asked.load(Ordering::Relaxed) > 100);
    }

    #[test]
    fn readers_never_mix_two_curves() {
        let nth = |n: u64| {
            let segment = |n| Segment {
                begin: n,
                unix: n,
                slope: n,
            };
            Curve {
                first: segment(n),
                last: segment(n + 1),
            }
        };
        let published = Published::new(&nth(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut seen = 0;
                    while seen < 300_000 {
                        let curve = published.curve();
                        assert_eq!(curve, nth(curve.first.begin));
                        assert!(curve.first.begin >= seen);
                        seen = curve.first.begin;
                    }
                });
            }
            for n in 1..=300_000 {
                published.publish(&nth(n));
            }
        });
    }

    #[test]
    fn a_comparison_is_made_by_one_and_awaited_by_none() {
        let clock = SteeredClock::new(Machine::new());
        let held = clock.comparison.lock().unwrap();
        thread::sleep(Duration::from_millis(1100));
        let before = clock.now();
        assert!(clock.now() >= before);
        let generation = || clock.published.generation();
        assert_eq!(generation(), 1);
        drop(held);
        assert!(clock.now() >= before);
        assert_eq!(generation(), 2);
    }
}
