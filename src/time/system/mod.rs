//! The processor's counter, steered to Unix time, for any number of threads.

mod published;
mod slew;

use std::{
    fmt,
    sync::{Mutex, OnceLock, TryLockError},
    time::{Instant, SystemTime},
};

use self::{
    published::Published,
    slew::{Pace, Sample, Segment},
};
use super::{Clock, Timestamp};

/// The clock of this process, and the default of local stores: fast, monotone, near Unix time.
///
/// It reads the processor's time stamp counter where there is a reliable one (else the
/// operating system's monotonic clock), and starts at Unix time. About once a second
/// the caller who notices first compares it with Unix time; nobody waits for that. All
/// values of this type tell the same time and cost nothing to make or to copy, except
/// the first one of a process, which calibrates the counter for up to 0.2 s: make it
/// while starting up.
///
/// # Accuracy
///
/// A difference from Unix time is slewed away: the clock runs up to 500 ppm (0.05 %)
/// fast or slow until they agree, half a millisecond per second.
///
/// - `retry_after` is a promise by *this* clock. A client that waits n seconds by its own
///   clock may find up to 0.05 % of n missing while this one is being slewed slow
///   (half a millisecond of a second), besides what the two oscillators differ by.
/// - While a difference lasts, windows of the calendar begin and end that much early or
///   late. A calendar set back by a minute takes 33 hours to be met.
/// - When Unix time is ahead by more than a second, as after the machine slept, the
///   clock jumps forward at the next comparison. It is never set back.
/// - Each thread sees time that never falls. Two threads that look at the same moment may
///   differ by some tens of nanoseconds, as their cores' counters do.
/// - A counter that restarts while the machine sleeps is noticed at the next look. Threads
///   that look in that same microsecond may once see a time some seconds old.
/// - In the first second the rate is that of the calibration; from then on it is measured
///   against the operating system's monotonic clock.
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
    shared: &'static Steered<Machine>,
}

impl SystemClock {
    /// The clock of this process.
    pub fn new() -> Self {
        static SHARED: OnceLock<Steered<Machine>> = OnceLock::new();
        Self {
            shared: SHARED.get_or_init(|| Steered::new(Machine::new())),
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
    fn is_monotone(&self) -> bool {
        true
    }
}

/// Nanoseconds since the Unix epoch, 0 to 2⁶³ − 1, as the operating system has it.
#[expect(clippy::disallowed_methods, reason = "a clock reads time")]
pub(super) fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos());
    u64::try_from(nanos).unwrap_or(u64::MAX).min(u64::MAX >> 1)
}

/// What a [`Steered`] clock is made from.
trait Source {
    /// The counter.
    fn reading(&self) -> u64;
    /// Nanoseconds per unit of the counter, [`slew::POINT`] bits behind the point.
    fn rate(&self) -> u64;
    /// The counter beside the slower clocks.
    fn sample(&self) -> Sample;
}

struct Machine {
    counter: quanta::Clock,
    origin: Instant,
}

impl Machine {
    #[expect(clippy::disallowed_methods, reason = "a clock reads time")]
    fn new() -> Self {
        Self {
            counter: quanta::Clock::new(),
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

impl Source for Machine {
    #[inline]
    fn reading(&self) -> u64 {
        self.counter.raw()
    }

    fn rate(&self) -> u64 {
        self.counter.delta_as_nanos(0, 1 << slew::POINT).max(1)
    }

    /// The narrowest of three: a thread can be suspended between two readings.
    fn sample(&self) -> Sample {
        let again = || self.sample_once();
        let narrower = |a: Sample, b: Sample| if b.width < a.width { b } else { a };
        narrower(narrower(again(), again()), again())
    }
}

/// A counter whose readings are turned into Unix time along a published [`Curve`].
struct Steered<S> {
    source: S,
    pace: Pace,
    published: Published,
    steering: Mutex<Steering>,
}

/// What only the thread that compares needs.
struct Steering {
    rate: u64,
    sample: Sample,
}

impl<S: Source> Steered<S> {
    fn new(source: S) -> Self {
        let (sample, rate) = (source.sample(), source.rate());
        let pace = Pace::of(rate);
        let curve = pace.start(sample.reading, sample.unix, rate);
        Self {
            source,
            pace,
            published: Published::new(&curve),
            steering: Mutex::new(Steering { rate, sample }),
        }
    }

    #[inline]
    fn now(&self) -> u64 {
        let Segment { begin, unix, slope } = self.published.last();
        let elapsed = self.source.reading().wrapping_sub(begin);
        // One comparison for "not before it begins" and "nothing is due".
        if elapsed < self.pace.length {
            unix.saturating_add(slew::scale(elapsed, slope))
        } else {
            self.now_off_the_line()
        }
    }

    #[cold]
    fn now_off_the_line(&self) -> u64 {
        let curve = self.published.curve();
        if self.pace.is_due(&curve, self.source.reading()) {
            self.compare();
        }
        let curve = self.published.curve();
        self.pace.time(&curve, self.source.reading())
    }

    /// Publishes the next curve, unless another thread is about to.
    fn compare(&self) {
        let mut steering = match self.steering.try_lock() {
            Ok(steering) => steering,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let curve = self.published.curve();
        let sample = self.source.sample();
        if !self.pace.is_due(&curve, sample.reading) {
            return;
        }
        steering.rate = slew::rate_between(&steering.sample, &sample, steering.rate);
        steering.sample = sample;
        let next = self
            .pace
            .next(&curve, sample.reading, sample.unix, steering.rate);
        self.published.publish(&next);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicU64, Ordering},
        thread,
        time::Duration,
    };

    use super::slew::Curve;
    use super::*;

    /// The machine's counter with a rate that is 10 000 times too high and a Unix time that
    /// swings: tens of thousands of comparisons in a test of a second.
    struct Wild {
        machine: Machine,
        asked: AtomicU64,
    }

    impl Source for Wild {
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
        let clock = Steered::new(Wild {
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
            thread::sleep(Duration::from_secs(1));
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
        let clock = Steered::new(Machine::new());
        let held = clock.steering.lock().unwrap();
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
