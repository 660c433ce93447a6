//! The arithmetic that draws a monotone line near Unix time, without a clock in it.
//!
//! A counter's reading becomes a time along a [`Curve`] of two straight [`Segment`]s.
//! About once a second a comparison with Unix time gives the next curve, and two laws
//! make all of them together monotone: no curve falls, and **the next curve is nowhere
//! below the last one**. So it does not matter when a reader learns of a curve, how late
//! it was drawn, or how late the counter is read.
//!
//! A segment that was not replaced in time goes on at [`Pace::tail`], slower than any
//! segment ever runs, which is what keeps late successors above it.

/// Slopes are nanoseconds per unit of the counter, with 32 bits behind the point.
pub(super) const POINT: u32 = 32;

const SECOND: u64 = 1_000_000_000;

/// A straight piece of a [`Curve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// The reading at which it begins.
    pub(super) begin: u64,
    /// Nanoseconds since the Unix epoch there.
    pub(super) unix: u64,
    pub(super) slope: u64,
}

/// Time as a function of the counter's reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Curve {
    /// Holds until `last` begins.
    pub(super) first: Segment,
    pub(super) last: Segment,
}

impl Curve {
    /// Whether the counter fell back by seconds, as some do while a machine sleeps.
    fn restarted(&self, reading: u64) -> bool {
        reading < self.first.begin
    }
}

/// What all curves of one clock have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// A second in units of the counter: then a segment's successor is due. It ends 1/16 later.
    pub(super) length: u64,
    /// The least slope: 1/64 below the calibrated rate, so within reach of its errors and slewing.
    tail: u64,
}

impl Pace {
    /// The pace of a counter whose calibrated rate is `rate`.
    pub(super) fn of(rate: u64) -> Self {
        let units = (u128::from(SECOND) << POINT) / u128::from(rate.max(1));
        Self {
            length: narrow(units).max(16),
            tail: rate - rate.div_ceil(64),
        }
    }

    fn whole(&self) -> u64 {
        self.length.saturating_add(self.length / 16)
    }

    /// A curve through one point.
    pub(super) fn start(&self, reading: u64, unix: u64, rate: u64) -> Curve {
        let slope = rate.max(self.tail);
        let begin = reading.saturating_sub(self.length);
        // A core whose counter lags by some units must not look like a counter that began anew.
        let first = Segment {
            begin,
            unix: unix.saturating_sub(scale(reading - begin, slope).saturating_add(1)),
            slope,
        };
        let last = Segment {
            begin: reading,
            unix,
            slope,
        };
        Curve { first, last }
    }

    /// The time that `curve` gives a reading: never falling, flat before its first segment.
    pub(super) fn time(&self, curve: &Curve, reading: u64) -> u64 {
        let segment = if reading >= curve.last.begin {
            curve.last
        } else {
            curve.first
        };
        let elapsed = reading.saturating_sub(segment.begin);
        let along = elapsed.min(self.whole());
        let nanos = product(along, segment.slope)
            .saturating_add(product(elapsed - along, self.tail))
            >> POINT;
        segment.unix.saturating_add(narrow(nanos))
    }

    /// Whether the curve after `curve` should be drawn at this reading.
    pub(super) fn is_due(&self, curve: &Curve, reading: u64) -> bool {
        curve.restarted(reading) || reading.saturating_sub(curve.last.begin) >= self.length
    }

    /// The curve that goes on from `curve` towards `unix`, the true time at `reading`.
    ///
    /// It leaves `curve` at its end, or at `reading` if that is later, and closes in on
    /// Unix time at most 500 ppm faster or slower than `rate`. A stretch without
    /// comparisons counts as slewed all along. More than a second behind, it jumps.
    pub(super) fn next(&self, curve: &Curve, reading: u64, unix: u64, rate: u64) -> Curve {
        let end = curve.last.begin.saturating_add(self.whole());
        let along = product(end - curve.last.begin, curve.last.slope);
        // Where a line of that slope from the end arrives. Rounded up: one rounding down of
        // the whole way, as `time` does it, must not give more.
        let reach = |units, slope| {
            let nanos = along.saturating_add(product(units, slope));
            curve
                .last
                .unix
                .saturating_add(narrow(nanos.div_ceil(1 << POINT)))
        };
        if curve.restarted(reading) {
            return self.start(reading, unix.max(reach(0, 0)), rate);
        }
        // At or above the tail, or the new curve could fall below the old one.
        let slowest = (rate - rate / 2000).max(self.tail);
        let fastest = (rate + rate / 2000).max(slowest);
        let begin = end.max(reading);
        let truth = unix.saturating_add(scale(begin - reading, rate));
        let gap = begin - end;
        let mut start = truth.clamp(reach(gap, slowest), reach(gap, fastest));
        if truth.saturating_sub(start) > SECOND {
            start = truth;
        }
        let behind = (i128::from(truth) - i128::from(start)) << POINT;
        let slope = i128::from(rate) + behind / i128::from(self.whole());
        let last = Segment {
            begin,
            unix: start,
            slope: u64::try_from(slope.max(0))
                .unwrap_or(u64::MAX)
                .clamp(slowest, fastest),
        };
        let first = curve.last;
        Curve { first, last }
    }
}

/// The machine's clocks, read together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) reading: u64,
    /// The units that passed while the other clocks were read.
    pub(super) width: u64,
    /// Nanoseconds of a clock that never jumps, from any origin.
    pub(super) steady: u64,
    /// Nanoseconds since the Unix epoch.
    pub(super) unix: u64,
}

/// The counter's rate as the steady clock saw it between two samples.
///
/// It moves away from the former `rate` by at most 1/2048 (488 ppm), so that a steady
/// clock that stopped while the machine slept does little harm. Samples too near to
/// each other, or too blurred, change nothing.
pub(super) fn rate_between(from: &Sample, to: &Sample, rate: u64) -> u64 {
    let units = to.reading.saturating_sub(from.reading);
    let nanos = to.steady.saturating_sub(from.steady);
    let blur = from.width.saturating_add(to.width);
    if nanos < SECOND / 2 || units == 0 || blur > units / 20_000 {
        return rate;
    }
    let seen = (u128::from(nanos) << POINT) / u128::from(units);
    narrow(seen).clamp(rate - rate / 2048, rate + rate / 2048)
}

/// Nanoseconds for so many units, rounded down; of a span that is below 2⁶⁴ ns.
#[inline]
pub(super) fn scale(units: u64, slope: u64) -> u64 {
    (product(units, slope) >> POINT) as u64
}

#[inline]
fn product(units: u64, slope: u64) -> u128 {
    u128::from(units) * u128::from(slope)
}

#[inline]
fn narrow(nanos: u128) -> u64 {
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters at 1 GHz, 3 GHz, and 24 MHz.
    const RATES: [u64; 3] = [1 << POINT, (1 << POINT) / 3, (1 << POINT) * 125 / 3];
    const START: u64 = 1_767_225_600 * SECOND;
    const MILLI: u64 = SECOND / 1000;

    /// A deterministic sequence of numbers, each below its bound.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ (mixed >> 31)) % bound
        }
    }

    /// A counter of nanoseconds, its pace, and a curve through one second.
    fn plain() -> (Pace, Curve) {
        let pace = Pace::of(RATES[0]);
        (pace, pace.start(SECOND, START, RATES[0]))
    }

    /// Compares ten times a second, for so many seconds; gives what the clock is off by.
    fn follow(pace: &Pace, curve: &mut Curve, from: (u64, u64), seconds: u64) -> i64 {
        let (mut reading, mut unix) = from;
        for _ in 0..seconds * 10 {
            reading += SECOND / 10;
            unix += SECOND / 10;
            if pace.is_due(curve, reading) {
                *curve = pace.next(curve, reading, unix, RATES[0]);
            }
        }
        pace.time(curve, reading) as i64 - unix as i64
    }

    #[test]
    fn curves_never_fall_and_each_is_nowhere_below_the_last() {
        for seed in 0..300 {
            let mut dice = Dice(seed);
            let calibrated = RATES[dice.below(3) as usize];
            let pace = Pace::of(calibrated);
            let mut reading = 1 + dice.below(1 << 50);
            let mut curve = pace.start(reading, START, calibrated);
            let mut seen = 0;
            for _ in 0..200 {
                // Gaps from nothing to days; Unix time anywhere within seconds, at times hours.
                let longest = pace.length << dice.below(18);
                reading += dice.below(longest);
                let told = pace.time(&curve, reading);
                assert!(told >= seen, "seed {seed}: back by {} ns", seen - told);
                seen = told;
                if !pace.is_due(&curve, reading) {
                    continue;
                }
                let furthest = SECOND << dice.below(13);
                let unix = told - furthest + dice.below(2 * furthest);
                let rate = calibrated - calibrated / 30 + dice.below(calibrated / 15);
                let next = pace.next(&curve, reading, unix, rate);
                let from = curve.first.begin;
                let ahead = (next.last.begin - from + pace.length * 4) << dice.below(6);
                for _ in 0..50 {
                    let probe = from + dice.below(ahead);
                    let time = pace.time(&next, probe);
                    assert!(time >= pace.time(&curve, probe), "seed {seed}: below");
                    let later = probe + (dice.below(ahead) >> dice.below(50));
                    assert!(time <= pace.time(&next, later), "seed {seed}: falls");
                }
                curve = next;
            }
        }
    }

    #[test]
    fn segments_join_without_a_gap() {
        for rate in RATES {
            let pace = Pace::of(rate);
            let curve = pace.start(5 * pace.length, START, rate);
            let due = 6 * pace.length;
            for off in [0, MILLI, 900 * MILLI] {
                for unix in [START + SECOND + off, START + SECOND - off] {
                    let next = pace.next(&curve, due, unix, rate);
                    let join = next.last.begin;
                    let there = pace.time(&next, join);
                    assert!(there - pace.time(&curve, join) <= 1);
                    assert!(there - pace.time(&next, join - 1) <= scale(1, rate) + 2);
                    assert_eq!(pace.time(&next, due), pace.time(&curve, due));
                }
            }
        }
    }

    #[test]
    fn slews_by_at_most_500_ppm_and_arrives() {
        let (most, least) = (RATES[0] + RATES[0] / 2000, RATES[0] - RATES[0] / 2000);
        for (unix, slope) in [(START + 10 * MILLI, most), (START - 10 * MILLI, least)] {
            let (pace, mut curve) = plain();
            let off = follow(&pace, &mut curve, (SECOND, unix), 10).unsigned_abs();
            assert_eq!(curve.last.slope, slope);
            // 10 s at 500 ppm are 5 ms of the 10, less the first second without a comparison.
            assert!((5 * MILLI..6 * MILLI).contains(&off), "{off}");
            let from = (11 * SECOND, unix + 10 * SECOND);
            let off = follow(&pace, &mut curve, from, 14).unsigned_abs();
            assert!(off < 100, "{off}");
        }
    }

    #[test]
    fn jumps_forward_over_more_than_a_second_but_never_back() {
        let (pace, start) = plain();
        let mut curve = start;
        let off = follow(&pace, &mut curve, (SECOND, START + 3600 * SECOND), 2);
        assert!(off.abs() < 10, "{off}");
        let mut curve = start;
        follow(&pace, &mut curve, (SECOND, START - 3600 * SECOND), 2);
        let told = pace.time(&curve, 3 * SECOND) - START;
        assert!((2 * SECOND - MILLI..2 * SECOND).contains(&told), "{told}");
    }

    #[test]
    fn a_stretch_without_readers_counts_as_slewed() {
        let (pace, curve) = plain();
        let (reading, unix) = (3601 * SECOND, START + 3600 * SECOND);
        // The tail lost a minute of the hour; the next curve gives it back.
        assert!(unix - pace.time(&curve, reading) > 50 * SECOND);
        let next = pace.next(&curve, reading, unix, RATES[0]);
        assert_eq!(pace.time(&next, reading), unix);
        // Of two seconds too many, an hour takes 1.8.
        let early = unix - 2 * SECOND;
        let next = pace.next(&curve, reading, early, RATES[0]);
        let left = pace.time(&next, reading) - early;
        assert!((200 * MILLI..202 * MILLI).contains(&left), "{left}");
    }

    #[test]
    fn a_counter_that_began_anew_is_anchored_again() {
        let pace = Pace::of(RATES[0]);
        let curve = pace.start(900 * SECOND, START, RATES[0]);
        assert!(!pace.is_due(&curve, 900 * SECOND - 40));
        assert!(pace.is_due(&curve, 5));
        let next = pace.next(&curve, 5, START + 70 * SECOND, RATES[0]);
        assert_eq!(pace.time(&next, 5), START + 70 * SECOND);
        assert!(!pace.is_due(&next, 6));
        let set_back = pace.next(&curve, 5, START - 70 * SECOND, RATES[0]);
        assert!(pace.time(&set_back, 5) >= START + SECOND);
    }

    #[test]
    fn the_rate_is_measured_and_moves_by_little() {
        let sample = |reading, steady, width| Sample {
            reading,
            width,
            steady,
            unix: 0,
        };
        let (rate, from) = (1 << POINT, sample(0, 0, 100));
        let to = sample(SECOND + 100_000, SECOND, 100);
        let seen = rate_between(&from, &to, rate);
        assert_eq!(scale(SECOND + 100_000, seen + 1), SECOND);
        // Blurred, too near, backwards: nothing learnt.
        for useless in [
            sample(SECOND + 100_000, SECOND, 60_000),
            sample(SECOND / 4, SECOND / 4, 0),
            sample(0, SECOND, 0),
        ] {
            assert_eq!(rate_between(&from, &useless, rate), rate);
        }
        // The steady clock slept.
        let slept = rate_between(&from, &sample(3600 * SECOND, SECOND, 0), rate);
        assert_eq!(slept, rate - rate / 2048);
    }

    #[test]
    fn extremes_saturate() {
        for rate in [1, 1 << POINT, u64::MAX / 4] {
            let pace = Pace::of(rate);
            for (reading, unix) in [(0, 0), (0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
                let curve = pace.start(reading, unix, rate);
                let next = pace.next(&curve, u64::MAX, u64::MAX - unix, rate);
                assert!(pace.time(&next, u64::MAX) >= pace.time(&curve, u64::MAX));
            }
        }
    }
}
