//! A counter, steered to Unix time, for any number of threads.

use std::sync::{Mutex, TryLockError};

use super::{
    machine::ClockSource,
    published::Published,
    slew::{self, CurveRules, Sample, Segment},
};

/// A clock that converts the readings of a counter into Unix time along a published [curve](super::slew::Curve).
pub(super) struct SteeredClock<S> {
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
    pub(super) fn new(source: S) -> Self {
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
    pub(super) fn now(&self) -> u64 {
        let Segment { begin, unix, slope } = self.published.last();
        let elapsed = self.source.reading().wrapping_sub(begin);
        // One branch for "not before the segment" and "no comparison due": an earlier reading wraps around.
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

    /// Compares the counter with Unix time and publishes the next curve, unless another thread does so now.
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

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicU64, Ordering},
        thread,
        time::Duration,
    };

    use super::super::{machine::Machine, slew::Curve};
    use super::*;

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
