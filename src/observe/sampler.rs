//! A number of samples per second.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::Timestamp;

/// The bits of [`Sampler::current`] that count samples. Seconds need 35 of the others.
const COUNT_BITS: u32 = 24;

/// Takes a number of samples in each second of a clock, and counts what it skips.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    /// The latest second in the high bits, and the number of samples taken in it in the low ones.
    current: AtomicU64,
    skipped: AtomicU64,
}

impl Sampler {
    /// Takes a sample, unless `most` were taken in this second; returns the number of those that were skipped before it.
    // Relaxed throughout: one word decides, and the count is for a report.
    pub(super) fn take(&self, now: Timestamp, most: u32) -> Option<u64> {
        let second = now.as_nanos() / 1_000_000_000;
        let most = u64::from(most).min((1 << COUNT_BITS) - 1);
        let take = |current: u64| {
            // A clock that steps back stands still.
            let begun = second > current >> COUNT_BITS;
            let current = if begun { second << COUNT_BITS } else { current };
            let taken = current & ((1 << COUNT_BITS) - 1);
            (taken < most).then_some(current + 1)
        };
        let taken = self
            .current
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_err() {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.skipped.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(1_800_000_000_000_000_000 + millis * 1_000_000)
    }

    #[test]
    fn a_second_has_a_number_of_samples_and_the_next_one_counts_the_others() {
        for most in [1, 3, 100] {
            let sampler = Sampler::default();
            let mut skipped = 0;
            // 200 events in each of five seconds.
            for event in 0..1000 {
                let in_second = event % 200;
                let expected = (in_second < most).then_some(skipped);
                assert_eq!(sampler.take(at(5 * event), most as u32), expected);
                skipped = if expected.is_some() { 0 } else { skipped + 1 };
            }
        }
    }

    #[test]
    fn none_and_all_can_be_taken() {
        let sampler = Sampler::default();
        assert!((0..10).all(|_| sampler.take(at(0), 0).is_none()));
        assert_eq!(sampler.take(at(0), u32::MAX), Some(10));
        assert!((0..10).all(|_| sampler.take(at(0), u32::MAX) == Some(0)));
    }

    #[test]
    fn a_clock_that_steps_back_brings_no_more_samples() {
        let sampler = Sampler::default();
        assert!(sampler.take(at(5000), 1).is_some());
        assert!((0..5).all(|second| sampler.take(at(1000 * second), 1).is_none()));
        assert_eq!(sampler.take(at(6000), 1), Some(5));
        assert!(sampler.take(Timestamp::MAX, 1).is_some());
        assert!(sampler.take(Timestamp::MAX, 1).is_none());
    }
}
