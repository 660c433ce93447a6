//! Counters in one word.
//!
//! The packed state is the beginning of the newest slice, plus the counters as binary digits: the
//! counter of the newest slice in the highest ones, that of the oldest in the lowest ones. All
//! digits together are less than the ticks in a slice, so packed states grow from slice to slice,
//! and also with each charge, which goes to the newest slice.
//!
//! The instant of the last write is lost. A store in memory needs it for other slices only, because
//! its time never decreases.
//!
//! Packed states must grow from slice to slice, so all digits together must be less than the ticks
//! in a slice; this bounds the limit. The width of a counter depends on the window and the number
//! of slices only, so rules with other limits read it.
//!
//! A rule with other slices counts the calls as of now. A refusal by such a rule moves the state to
//! the map, with the instant of the write: otherwise each call would count them later, and retry
//! times would be wrong. Of several evicted usages the greatest is recorded, which bounds only the
//! newest counter of the others. So all older digits of inherited usage are read as ones.

use std::time::Duration;

use super::{
    SlidingWindow, SlidingWindowState,
    slices::{SlicePosition, Slices, empty_in, until_free},
};
use crate::{
    algorithm::{
        packed::{InWords, Meaning, PackedKind, PackedSlices, PackedState, StepPacked, StoreTime},
        ticks::PER_NANO,
    },
    decision::{Compute, Cost, Decision, Deferred, Verdict},
    time::Timestamp,
};

/// A slice, as its beginning, and the counters in it.
#[derive(Clone, Copy)]
struct PackedSlice {
    start: PackedState,
    digits: u64,
}

impl StepPacked for SlidingWindow {
    const AHEAD: u64 = PackedState::LONGEST;

    #[inline]
    fn packed_kind(&self) -> PackedKind {
        PackedKind::slices(packed_slices(&self.slices))
    }

    // Always inlined: most callers read only a part of the decision, and the compiler drops the
    // rest.
    #[inline(always)]
    fn step_packed(
        &self,
        packed: PackedState,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision) {
        let (position, start) = begin(&self.slices, now);
        let digits = packed.since(start) as u64;
        let slice = if digits < packed_slices(&self.slices).length {
            PackedSlice { start, digits }
        } else {
            self.advance(packed, start)
        };
        self.step_slice(slice, position, now, cost)
    }

    fn step_debt(
        &self,
        debt: Option<PackedState>,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision) {
        let (position, start) = begin(&self.slices, now);
        let packed = debt.map_or(start, |debt| self.filled(debt, start));
        self.step_slice(self.advance(packed, start), position, now, cost)
    }

    fn floor(&self, now: StoreTime) -> PackedState {
        begin(&self.slices, now).1
    }
}

/// Returns the position of a store time in its slice, and the beginning of that slice.
#[inline(always)]
fn begin(slices: &Slices, now: StoreTime) -> (SlicePosition, PackedState) {
    let position = slices.position(now.at());
    let since = (position.length - position.rest) * PER_NANO;
    (position, now.packed().before(since as i64))
}

/// Returns how many slices a packed state lies after the one that begins at `start`, and its
/// counters.
#[inline]
fn slices_since(packed: PackedState, start: PackedState, length: u64) -> (i64, u64) {
    let (since, length) = (packed.since(start), length as i64);
    (since.div_euclid(length), since.rem_euclid(length) as u64)
}

impl SlidingWindow {
    /// Returns `true` if the rule's states are packed.
    #[inline]
    pub(in crate::algorithm) const fn is_packed(&self) -> bool {
        self.limit.get() >> self.bits == 0
    }

    /// Returns the slice of a packed state, or the one that begins at `start` if that is later,
    /// with the counters that still count.
    // Not inlined: only for calls in a slice without a charge.
    #[inline(never)]
    fn advance(&self, packed: PackedState, start: PackedState) -> PackedSlice {
        let PackedSlices { count, length } = packed_slices(&self.slices);
        let mut since = packed.since(start);
        if since >= 0 {
            // Another thread has read a later time, or it is a debt: time stands still until the
            // slice begins.
            let (_, digits) = slices_since(packed, start, length);
            let start = packed.before(digits as i64);
            return PackedSlice { start, digits };
        }
        // A refused key often gets here, and a sum takes less time than a division.
        for passed in 1..=count as u32 {
            since += length as i64;
            if since >= 0 {
                let digits = since as u64 >> (self.bits * passed);
                return PackedSlice { start, digits };
            }
        }
        PackedSlice { start, digits: 0 }
    }

    /// Returns the packed state with at least the counters of all packed states up to a debt, by
    /// which `start` is the beginning of a slice.
    ///
    /// These may have any counts in the slices before their newest one. So a key that inherits
    /// waits until those slices do not count any more.
    fn filled(&self, debt: PackedState, start: PackedState) -> PackedState {
        let PackedSlices { count, length } = packed_slices(&self.slices);
        let (_, digits) = slices_since(debt, start, length);
        let older = self.bits * count as u32;
        let newest = (digits >> older).min(most(self.bits));
        let filled = newest << older | most(older);
        // The debt itself, if its digits are not those of counters.
        debt.shifted(filled as i64 - digits as i64)
    }

    /// Steps in a slice; `position` is that of the time, unless the slice is later.
    #[inline(always)]
    fn step_slice(
        &self,
        PackedSlice { start, digits }: PackedSlice,
        position: SlicePosition,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision) {
        let (limit, cost) = (self.limit.get(), cost.get());
        let ahead = start.since(now.packed());
        let (rest, stalled) = match ahead > 0 {
            true => (position.length, ahead as u64 / PER_NANO),
            false => (position.rest, 0),
        };
        let position = SlicePosition { rest, ..position };
        let mut whole = 0;
        let mut left = digits >> self.bits;
        while left > 0 {
            whole += left & most(self.bits);
            left >>= self.bits;
        }
        let oldest = digits & most(self.bits);
        // As in the view of a state that is not packed.
        let estimate = whole + self.slices.inside(oldest, &position);
        let remaining = limit.saturating_sub(estimate);
        let slices = packed_slices(&self.slices);
        let counters = |digits| PackedCounters {
            slices,
            bits: self.bits,
            digits,
        };
        let answer = |verdict, remaining, counters: PackedCounters| {
            Decision::new(verdict, now.at(), cost)
                .with_limit(self.limit, self.quota)
                .with_deferred(counters.defer(limit, remaining, rest, stalled))
        };
        if cost > remaining {
            let counters = counters(digits);
            let retry_after = limit.checked_sub(cost).map(|free| {
                let after = |slices| counters.after(slices);
                Duration::from_nanos(stalled + until_free(free, counters.iter(), rest, after))
            });
            let refusal = answer(Verdict::Refuse, remaining, counters);
            return (None, refusal.with_retry_after(retry_after));
        }
        // The newest counter is at most the limit, which has no more digits.
        let digits = digits + (cost << (self.bits * slices.count as u32));
        let decision = answer(Verdict::Allow, remaining - cost, counters(digits));
        (Some(start.after(digits)), decision)
    }
}

impl InWords<SlidingWindowState> for SlidingWindow {
    /// Packs a state of these slices, if its counters fit.
    fn write_word(&self, state: &SlidingWindowState, now: StoreTime) -> Option<PackedState> {
        let fits = |counter: &u64| counter >> self.bits == 0;
        if !(self.is_packed() && state.counts_in(&self.slices) && state.counters.iter().all(fits)) {
            return None;
        }
        let add = |digits: u64, counter: &u64| digits << self.bits | counter;
        let digits = state.counters.iter().fold(0, add);
        let position = self.slices.position(state.written_at);
        let start = state.written_at.as_nanos() - (position.length - position.rest);
        now.packed_after(Timestamp::from_nanos(start), digits as i64)
    }

    /// Unpacks the state of a packed state of sliding windows, or a debt.
    fn read_word(
        &self,
        packed: PackedState,
        packed_kind: PackedKind,
        now: StoreTime,
    ) -> Option<SlidingWindowState> {
        match packed_kind.meaning() {
            Meaning::Slices(slices) => SlidingWindowState::unpack(packed, slices, now),
            // Not only for rules whose limit fits: other rules may have packed the state of the
            // key.
            Meaning::Debt if self.bits > 0 => {
                let packed = self.filled(packed, begin(&self.slices, now).1);
                SlidingWindowState::unpack(packed, packed_slices(&self.slices), now)
            }
            _ => None,
        }
    }
}

impl SlidingWindowState {
    /// Returns the state of a packed state, as if it was written at `now`, but in its newest slice.
    fn unpack(packed: PackedState, packed_slices: PackedSlices, now: StoreTime) -> Option<Self> {
        let PackedSlices { count, length } = packed_slices;
        let nanos = length / PER_NANO;
        let slices = Slices::new(count * nanos, count as u32);
        let (position, start) = begin(&slices, now);
        let (ahead, digits) = slices_since(packed, start, length);
        let start = i128::from(now.at().as_nanos() - (position.length - position.rest))
            + i128::from(ahead) * i128::from(nanos);
        // A packed state before the Unix epoch is an old debt.
        let start = u64::try_from(start).ok()?;
        let last = start.saturating_add(nanos - 1);
        let written_at = now.at().as_nanos().clamp(start, last);
        let mut state = Self::empty(&slices, Timestamp::from_nanos(written_at));
        let counters = PackedCounters::new(packed_slices, digits);
        for (counter, count) in state.counters.iter_mut().zip(counters.iter()) {
            *counter = count;
        }
        Some(state)
    }
}

/// The binary digits of the number of slices in a deferred state; the length of a slice is above
/// them.
const COUNT_BITS: u32 = PackedSlices::MAX_COUNT.count_ones();

/// The counters of a packed state.
#[derive(Clone, Copy)]
struct PackedCounters {
    slices: PackedSlices,
    /// The number of binary digits of each.
    bits: u32,
    digits: u64,
}

/// Returns the number of binary digits of each counter.
#[inline]
const fn bits(slices: PackedSlices) -> u32 {
    slices.length.ilog2() / (slices.count as u32 + 1)
}

/// Returns the number of binary digits of each counter; 0 if a packed state does not hold the
/// counters of these slices.
pub(super) const fn bits_of(slices: &Slices) -> u32 {
    if !slices.are_even() || slices.count() > PackedSlices::MAX_COUNT {
        return 0;
    }
    const LONGEST: u64 = PackedState::LONGEST / PER_NANO;
    // Neither overflows: a window is at most 2⁶³ − 1 nanoseconds.
    if slices.window() + slices.length() > LONGEST {
        return 0;
    }
    bits(packed_slices(slices))
}

/// Converts slices to those of a packed kind.
#[inline]
const fn packed_slices(slices: &Slices) -> PackedSlices {
    PackedSlices {
        count: slices.count(),
        length: slices.length() * PER_NANO,
    }
}

impl PackedCounters {
    #[inline]
    pub(super) fn new(slices: PackedSlices, digits: u64) -> Self {
        let bits = bits(slices);
        Self {
            slices,
            bits,
            digits,
        }
    }

    /// Returns the counters, the one of the newest slice first.
    #[inline]
    pub(super) fn iter(self) -> impl ExactSizeIterator<Item = u64> {
        let Self { bits, digits, .. } = self;
        let newest_first = (0..self.slices.count as u32 + 1).rev();
        newest_first.map(move |index| digits >> (index * bits) & most(bits))
    }

    /// Returns the total length of a number of slices, and that of each, in nanoseconds.
    #[inline]
    pub(super) fn after(self, slices: u64) -> (u64, u64) {
        let length = self.slices.length / PER_NANO;
        (slices * length, length)
    }

    /// Returns the counters in a deferred state.
    #[inline]
    fn deferred(digits: u64, slices: u64) -> Self {
        let slices = PackedSlices {
            count: slices & PackedSlices::MAX_COUNT,
            length: slices >> COUNT_BITS,
        };
        Self::new(slices, digits)
    }

    /// Returns the counters of a decision that leaves `remaining` units of a limit.
    #[inline]
    fn defer(self, limit: u64, remaining: u64, rest: u64, stalled: u64) -> Deferred {
        let PackedSlices { count, length } = self.slices;
        Deferred {
            state: [
                limit,
                self.digits,
                rest,
                stalled,
                length << COUNT_BITS | count,
                remaining,
            ],
            compute: &DEFERRED,
        }
    }
}

/// Returns the largest number of `bits` binary digits.
#[inline]
pub(super) const fn most(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Computes the numbers from the limit, the counters, the nanoseconds until the slice ends and
/// until it begins, the length of slices above their number, and the remaining units.
const DEFERRED: Compute = Compute {
    remaining: |&[.., remaining]| remaining,
    reset_after: |&[_, digits, rest, stalled, slices, _]| {
        let counters = PackedCounters::deferred(digits, slices);
        let wait = empty_in(counters.iter(), rest, |slices| counters.after(slices));
        wait.map_or(Duration::ZERO, |wait| Duration::from_nanos(stalled + wait))
    },
    more_after: |&[limit, digits, rest, stalled, slices, _], remaining| {
        let counters = PackedCounters::deferred(digits, slices);
        let Some(free) = limit.checked_sub(remaining + 1) else {
            return Duration::ZERO;
        };
        let wait = until_free(free, counters.iter(), rest, |slices| counters.after(slices));
        Duration::from_nanos(stalled + wait)
    },
    position: |_, _| None,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        algorithm::{Algorithm, Step, packed::InMemory},
        quota::Quota,
    };

    const SECOND: u64 = 1_000_000_000;
    const YEAR: u64 = 365 * 86_400 * SECOND;

    fn windows() -> impl Strategy<Value = u64> {
        let usual = [1, 60, 3_600, 86_400].map(|seconds| seconds * SECOND);
        prop_oneof![
            3 => prop::sample::select(usual.to_vec()),
            1 => 1..1_000_u64,
            1 => 1..=2 * YEAR,
        ]
    }

    fn rule(limit: u64, window: u64, slices: u64) -> SlidingWindow {
        let quota = Quota::new(limit, Duration::from_nanos(window));
        SlidingWindow::new(quota).slices(slices)
    }

    /// Rules with packed states, whose limits use any part of the digits of a counter.
    fn packed_rules() -> impl Strategy<Value = SlidingWindow> {
        let parts = (windows(), 1..=16_u64, any::<u64>(), 0..28_u32);
        parts.prop_filter_map("packed", |(window, slices, limit, less)| {
            let slices = slices.min(window);
            let window = window - window % slices;
            let bits = rule(1, window, slices).bits;
            let limit = (limit % (1 << bits)) >> (less % bits.max(1));
            Some(rule(limit.max(1), window, slices)).filter(SlidingWindow::is_packed)
        })
    }

    /// The instant at which a store was made, from the Unix epoch to the year 2262.
    fn made() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), Just(56 * YEAR), 0..u64::MAX >> 1]
    }

    fn time(made: u64, since: u64) -> StoreTime {
        let [at, made] = [made + since, made].map(Timestamp::from_nanos);
        StoreTime::new(at, made)
    }

    /// Returns a state with random counters that fit, for the slice that contains an instant.
    fn state(rule: &SlidingWindow, at: u64, seed: u64) -> SlidingWindowState {
        let at = Timestamp::from_nanos(at);
        let mut state = SlidingWindowState::empty(&rule.slices, at);
        for (counter, n) in state.counters.iter_mut().zip(1..) {
            *counter = seed.wrapping_mul(2 * n + 1) >> 13 & most(rule.bits);
        }
        state
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            rule in packed_rules(), made in made(), since in 0..10 * YEAR, later in 0..10 * YEAR, seed: u64,
        ) {
            let (now, later) = (time(made, since), time(made, since.max(later)));
            let state = state(&rule, made + since, seed);
            let packed = rule.pack(&state, now).unwrap();
            for at in [now, later] {
                prop_assert_eq!(rule.pack(&state, at), Some(packed));
                let unpacked = rule.unpack(packed, rule.packed_kind(), at).unwrap();
                prop_assert_eq!(&unpacked.counters, &state.counters);
                prop_assert_eq!(unpacked.window, state.window);
                prop_assert!(unpacked.written_at >= state.written_at);
                prop_assert_eq!(rule.pack(&unpacked, at), Some(packed));
            }
            let until = rule.forgettable_at(&state).nanos_since(now.at()) * PER_NANO;
            let lasts = packed.get() + rule.packed_kind().lasts();
            prop_assert!(now.packed().get() + until <= lasts);
        }

        #[test]
        fn packed_states_are_stepped_as_all_others(
            first in packed_rules(), made in made(), since in 0..YEAR, limit: u64,
            steps in prop::collection::vec((0..3_000_u64, 1..5_u64, any::<u64>(), any::<bool>()), 1..60),
        ) {
            let PackedSlices { count, length } = packed_slices(&first.slices);
            let window = count * length / PER_NANO;
            let other = rule(1 + limit % most(first.bits), window, count);
            let (mut state, mut packed) = (None, None);
            let mut since = since;
            for (wait, parts, cost, is_other) in steps {
                let rule = if is_other { other } else { first };
                // In thousandths of a window; a third of the calls come at the same instant as the
                // one before.
                since += (u128::from(wait / 2 * 3 % 2_000) * u128::from(window) / 1_000) as u64 * u64::from(wait % 3 > 0);
                if since > 10 * YEAR {
                    break;
                }
                let now = time(made, since);
                let cost = Cost::new(cost % rule.limit.get().div_ceil(parts) + 1).unwrap();
                let ours = match packed {
                    Some(packed) => rule.step_packed(packed, now, cost),
                    None => rule.step_debt(None, now, cost),
                };
                let step = rule.step(&mut state, now.at(), cost);
                prop_assert_eq!(ours.1, step.decision());
                prop_assert_eq!(ours.0.is_some(), matches!(step, Step::Wrote(_)));
                if let Some(new) = ours.0 {
                    prop_assert!(Some(new) > packed && new > rule.floor(now));
                    prop_assert!(new.get() <= now.packed().get() + SlidingWindow::AHEAD);
                    prop_assert_eq!(rule.pack(state.as_ref().unwrap(), now), Some(new));
                    packed = Some(new);
                }
            }
        }

        /// In a time that another thread has passed, time stands still as it does for a state that
        /// was written at the beginning of its slice.
        #[test]
        fn time_stands_still_before_the_slice(
            rule in packed_rules(), made in made(), since in YEAR..10 * YEAR, back in 0..YEAR, cost: u64, seed: u64,
        ) {
            let now = time(made, since);
            let state = state(&rule, made + since, seed);
            let packed = rule.pack(&state, now).unwrap();
            let earlier = time(made, since - back);
            let unpacked = rule.unpack(packed, rule.packed_kind(), earlier).unwrap();
            let cost = Cost::new(cost % rule.limit.get() + 1).unwrap();
            let (_, decision) = rule.step_packed(packed, earlier, cost);
            prop_assert_eq!(decision, rule.step(&mut Some(unpacked), earlier.at(), cost).decision());
        }

        /// A debt is the greatest of several packed states, and no key may get more by it than by
        /// its own.
        #[test]
        fn a_debt_leaves_no_more_than_any_packed_state_up_to_it(
            rule in packed_rules(), made in made(), since in YEAR..10 * YEAR, back in 0..3_000_u64, seed: u64,
            more in prop_oneof![Just(0), any::<u64>()], less in 0..60_u32, is_first: bool,
        ) {
            let now = time(made, since);
            let window = rule.quota.period_nanos();
            let back = (u128::from(back) * u128::from(window) / 1_000) as u64;
            let written = since.saturating_sub(back);
            let own = rule.pack(&state(&rule, made + written, seed), time(made, written)).unwrap();
            let debt = own.shifted((more >> less >> 2) as i64);
            let cost = Cost::new(if is_first { 1 } else { rule.limit.get() }).unwrap();
            let (of_own, of_debt) = (rule.step_packed(own, now, cost), rule.step_debt(Some(debt), now, cost));
            let admits = [&of_debt, &of_own].map(|(packed, _)| packed.is_some());
            prop_assert!(admits[0] <= admits[1]);
            prop_assert!(admits[0] != admits[1] || of_debt.1.remaining() <= of_own.1.remaining());
            // And so does a state that is unpacked from it.
            let mut unpacked = rule.unpack(debt, PackedKind::DEBT, now);
            let step = rule.step(&mut unpacked, now.at(), cost).decision();
            prop_assert_eq!(of_debt.1, step);
        }
    }

    #[test]
    fn limits_that_fit_are_packed() {
        let fits = |window: u64, slices| {
            let bits = rule(1, window * SECOND, slices).bits;
            most(bits)
        };
        let day = 86_400;
        assert_eq!(
            [1, 60, 3_600, day].map(|window| fits(window, 1)),
            [32_767, 262_143, 2_097_151, 8_388_607]
        );
        assert_eq!(
            [1, 60, 3_600, day].map(|window| fits(window, 4)),
            [31, 127, 255, 511]
        );
        assert_eq!(
            [2, 3, 5, 6, 10, 12, 15, 20].map(|slices| fits(60, slices)),
            [4_095, 255, 31, 15, 7, 3, 3, 0]
        );
        // Slices of unequal lengths, and two years with a slice more.
        assert_eq!(
            [fits(1, 7), fits(730 * day, 15), fits(365 * day, 1)],
            [0, 0, (1 << 28) - 1]
        );
    }
}
