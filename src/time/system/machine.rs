//! The clocks of this machine: the processor's counter, the monotonic clock, and Unix time.

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
use std::time::{Instant, SystemTime};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use web_time::{Instant, SystemTime};

use super::slew::{self, Sample};

/// Returns the nanoseconds since the Unix epoch by the operating system, 0 to 2⁶³ − 1.
#[expect(clippy::disallowed_methods, reason = "a clock reads time")]
pub(in super::super) fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos());
    u64::try_from(nanos).unwrap_or(u64::MAX).min(u64::MAX >> 1)
}

/// The clocks that a [`SteeredClock`](super::steered::SteeredClock) reads.
pub(super) trait ClockSource {
    /// Reads the counter.
    fn reading(&self) -> u64;
    /// Returns nanoseconds per unit of the counter, with [`slew::POINT`] fractional bits.
    fn rate(&self) -> u64;
    /// Reads the counter and the slower clocks together.
    fn sample(&self) -> Sample;
}

/// The counter of the processor.
#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
struct Counter(quanta::Clock);

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
impl Counter {
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
struct Counter(Instant);

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
impl Counter {
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
pub(super) struct Machine {
    counter: Counter,
    origin: Instant,
}

impl Machine {
    #[expect(clippy::disallowed_methods, reason = "a clock reads time")]
    pub(super) fn new() -> Self {
        Self {
            counter: Counter::new(),
            origin: Instant::now(),
        }
    }

    pub(super) fn sample_once(&self) -> Sample {
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
