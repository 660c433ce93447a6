//! The arithmetic of a monotonic time near Unix time. Reads no clock.
//!
//! The reading of a counter is converted to a time along a [`Curve`] of two straight [`Segment`]s.
//! About once a second a comparison with Unix time gives the next curve. Two invariants
//! make all of them together monotonic: no curve falls, and **the next curve is nowhere
//! below the previous one**. So it does not matter when a reader loads a curve, how late
//! it was computed, or how late the counter is read.
//!
//! A segment that is not replaced in time continues with the slope [`CurveRules::tail`], which is
//! below that of all segments. This keeps late successors above it.

/// The fractional bits of slopes, which are nanoseconds per unit of the counter.
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
    /// Valid until `last` begins.
    pub(super) first: Segment,
    pub(super) last: Segment,
}

impl Curve {
    /// Returns `true` if the counter fell back by seconds, as some do while a machine sleeps.
    fn restarted(&self, reading: u64) -> bool {
        reading < self.first.begin
    }
}

/// The parameters that all curves of one clock share.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurveRules {
    /// A second in units of the counter, after which the successor of a segment is due. A segment
    /// ends 1/16 later.
    pub(super) length: u64,
    /// The least slope: 1/64 below the calibrated rate, so that errors of the calibration and
    /// slewing stay above it.
    tail: u64,
}

impl CurveRules {
    /// Returns the parameters for a counter with the calibrated rate `rate`.
    pub(super) fn new(rate: u64) -> Self {
        let units = (u128::from(SECOND) << POINT) / u128::from(rate.max(1));
        Self {
            length: narrow(units).max(16),
            tail: rate - rate.div_ceil(64),
        }
    }

    fn whole(&self) -> u64 {
        self.length.saturating_add(self.length / 16)
    }

    /// Returns a curve through one point.
    pub(super) fn start(&self, reading: u64, unix: u64, rate: u64) -> Curve {
        let slope = rate.max(self.tail);
        let begin = reading.saturating_sub(self.length);
        // A core whose counter lags by some units must not look like a counter that restarted.
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

    /// Returns the time of a reading along `curve`. It never falls, and is constant before the
    /// first segment.
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

    /// Returns `true` if the successor of `curve` is due at this reading.
    pub(super) fn is_due(&self, curve: &Curve, reading: u64) -> bool {
        curve.restarted(reading) || reading.saturating_sub(curve.last.begin) >= self.length
    }

    /// Returns the successor of `curve`, which approaches `unix`, the Unix time at `reading`.
    ///
    /// It leaves `curve` at its end, or at `reading` if that is later, and runs at most 500 ppm
    /// faster or slower than `rate`. A period without comparisons counts as slewed all along. If it
    /// is more than a second behind, it jumps.
    pub(super) fn next(&self, curve: &Curve, reading: u64, unix: u64, rate: u64) -> Curve {
        let end = curve.last.begin.saturating_add(self.whole());
        let along = product(end - curve.last.begin, curve.last.slope);
        // The end of a line with that slope from the end of the curve. Rounded up, so that `time`,
        // which rounds the whole distance down once, is never above it.
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
        // Not below the tail, or the new curve could fall below the old one.
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

/// Readings of the clocks of a machine, taken together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) reading: u64,
    /// The units of the counter that passed while the other clocks were read.
    pub(super) width: u64,
    /// Nanoseconds of a monotonic clock, from any origin.
    pub(super) steady: u64,
    /// Nanoseconds since the Unix epoch.
    pub(super) unix: u64,
}

/// Returns the rate of the counter, measured by the monotonic clock between two samples.
///
/// It differs from the previous `rate` by at most 1/2048 (488 ppm), so that a monotonic clock that
/// stopped while the machine slept does little harm. Samples that are too close together, or too
/// wide, change nothing.
pub(super) fn rate_between(from: &Sample, to: &Sample, rate: u64) -> u64 {
    let units = to.reading.saturating_sub(from.reading);
    let nanos = to.steady.saturating_sub(from.steady);
    let width = from.width.saturating_add(to.width);
    if nanos < SECOND / 2 || units == 0 || width > units / 20_000 {
        return rate;
    }
    let seen = (u128::from(nanos) << POINT) / u128::from(units);
    narrow(seen).clamp(rate - rate / 2048, rate + rate / 2048)
}

/// Returns the nanoseconds of `units`, rounded down. The result must be below 2⁶⁴ ns.
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
    use crate::random::Random;

    /// Counters at 1 GHz, 3 GHz, and 24 MHz.
    const RATES: [u64; 3] = [1 << POINT, (1 << POINT) / 3, (1 << POINT) * 125 / 3];
    const START: u64 = 1_767_225_600 * SECOND;
    const MILLI: u64 = SECOND / 1000;

    /// Returns a number from 0 to below `end`.
    fn below(dice: &mut Random, end: u64) -> u64 {
        dice.up_to(end - 1)
    }

    /// A counter of nanoseconds, its parameters, and a curve through one second.
    fn plain() -> (CurveRules, Curve) {
        let rules = CurveRules::new(RATES[0]);
        (rules, rules.start(SECOND, START, RATES[0]))
    }

    /// Compares ten times a second, for some seconds; returns the error of the clock.
    fn follow(rules: &CurveRules, curve: &mut Curve, from: (u64, u64), seconds: u64) -> i64 {
        let (mut reading, mut unix) = from;
        for _ in 0..seconds * 10 {
            reading += SECOND / 10;
            unix += SECOND / 10;
            if rules.is_due(curve, reading) {
                *curve = rules.next(curve, reading, unix, RATES[0]);
            }
        }
        rules.time(curve, reading) as i64 - unix as i64
    }

    #[test]
    fn curves_never_fall_and_each_is_nowhere_below_the_last() {
        for seed in 0..300 {
            let mut dice = Random::new(seed);
            let calibrated = RATES[below(&mut dice, 3) as usize];
            let rules = CurveRules::new(calibrated);
            let mut reading = 1 + below(&mut dice, 1 << 50);
            let mut curve = rules.start(reading, START, calibrated);
            let mut seen = 0;
            for _ in 0..200 {
                // Gaps from nothing to days; Unix time anywhere within seconds, at times hours.
                let longest = rules.length << below(&mut dice, 18);
                reading += below(&mut dice, longest);
                let time = rules.time(&curve, reading);
                assert!(time >= seen, "seed {seed}: back by {} ns", seen - time);
                seen = time;
                if !rules.is_due(&curve, reading) {
                    continue;
                }
                let furthest = SECOND << below(&mut dice, 13);
                let unix = time - furthest + below(&mut dice, 2 * furthest);
                let rate = calibrated - calibrated / 30 + below(&mut dice, calibrated / 15);
                let next = rules.next(&curve, reading, unix, rate);
                let from = curve.first.begin;
                let ahead = (next.last.begin - from + rules.length * 4) << below(&mut dice, 6);
                for _ in 0..50 {
                    let probe = from + below(&mut dice, ahead);
                    let time = rules.time(&next, probe);
                    assert!(time >= rules.time(&curve, probe), "seed {seed}: below");
                    let later = probe + (below(&mut dice, ahead) >> below(&mut dice, 50));
                    assert!(time <= rules.time(&next, later), "seed {seed}: falls");
                }
                curve = next;
            }
        }
    }

    #[test]
    fn segments_join_without_a_gap() {
        for rate in RATES {
            let rules = CurveRules::new(rate);
            let curve = rules.start(5 * rules.length, START, rate);
            let due = 6 * rules.length;
            for off in [0, MILLI, 900 * MILLI] {
                for unix in [START + SECOND + off, START + SECOND - off] {
                    let next = rules.next(&curve, due, unix, rate);
                    let join = next.last.begin;
                    let there = rules.time(&next, join);
                    assert!(there - rules.time(&curve, join) <= 1);
                    assert!(there - rules.time(&next, join - 1) <= scale(1, rate) + 2);
                    assert_eq!(rules.time(&next, due), rules.time(&curve, due));
                }
            }
        }
    }

    #[test]
    fn slews_by_at_most_500_ppm_and_arrives() {
        let (most, least) = (RATES[0] + RATES[0] / 2000, RATES[0] - RATES[0] / 2000);
        for (unix, slope) in [(START + 10 * MILLI, most), (START - 10 * MILLI, least)] {
            let (rules, mut curve) = plain();
            let off = follow(&rules, &mut curve, (SECOND, unix), 10).unsigned_abs();
            assert_eq!(curve.last.slope, slope);
            // 10 s at 500 ppm are 5 ms of the 10, less the first second without a comparison.
            assert!((5 * MILLI..6 * MILLI).contains(&off), "{off}");
            let from = (11 * SECOND, unix + 10 * SECOND);
            let off = follow(&rules, &mut curve, from, 14).unsigned_abs();
            assert!(off < 100, "{off}");
        }
    }

    #[test]
    fn jumps_forward_over_more_than_a_second_but_never_back() {
        let (rules, start) = plain();
        let mut curve = start;
        let off = follow(&rules, &mut curve, (SECOND, START + 3600 * SECOND), 2);
        assert!(off.abs() < 10, "{off}");
        let mut curve = start;
        follow(&rules, &mut curve, (SECOND, START - 3600 * SECOND), 2);
        let time = rules.time(&curve, 3 * SECOND) - START;
        assert!((2 * SECOND - MILLI..2 * SECOND).contains(&time), "{time}");
    }

    #[test]
    fn a_period_without_readers_counts_as_slewed() {
        let (rules, curve) = plain();
        let (reading, unix) = (3601 * SECOND, START + 3600 * SECOND);
        // The tail lost a minute of the hour; the next curve gives it back.
        assert!(unix - rules.time(&curve, reading) > 50 * SECOND);
        let next = rules.next(&curve, reading, unix, RATES[0]);
        assert_eq!(rules.time(&next, reading), unix);
        // Of two seconds too many, an hour takes 1.8.
        let early = unix - 2 * SECOND;
        let next = rules.next(&curve, reading, early, RATES[0]);
        let left = rules.time(&next, reading) - early;
        assert!((200 * MILLI..202 * MILLI).contains(&left), "{left}");
    }

    #[test]
    fn a_counter_that_restarted_gets_a_new_curve() {
        let rules = CurveRules::new(RATES[0]);
        let curve = rules.start(900 * SECOND, START, RATES[0]);
        assert!(!rules.is_due(&curve, 900 * SECOND - 40));
        assert!(rules.is_due(&curve, 5));
        let next = rules.next(&curve, 5, START + 70 * SECOND, RATES[0]);
        assert_eq!(rules.time(&next, 5), START + 70 * SECOND);
        assert!(!rules.is_due(&next, 6));
        let set_back = rules.next(&curve, 5, START - 70 * SECOND, RATES[0]);
        assert!(rules.time(&set_back, 5) >= START + SECOND);
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
        // Too wide, too close, backwards: no measurement.
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
            let rules = CurveRules::new(rate);
            for (reading, unix) in [(0, 0), (0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
                let curve = rules.start(reading, unix, rate);
                let next = rules.next(&curve, u64::MAX, u64::MAX - unix, rate);
                assert!(rules.time(&next, u64::MAX) >= rules.time(&curve, u64::MAX));
            }
        }
    }
}
