//! How a bucket fills, what a call takes, and how an earlier charge is corrected.

use std::time::Duration;

use super::rule::{BucketLevel, GivenBack, TokenBucket, TokenBucketState};
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        meter::{Meter, Metering},
        packed_kind::PackedKind,
        packed_state::{PackedState, StoreTime},
        ticks::{PARTS_PER_NANO, PER_NANO, Ticks, Units, Width},
        wait::{after, after_ticks},
    },
    decision::{
        Charge, Compute, Cost, Decision, Deferred, DeferredState, Numbers, Position, Verdict,
    },
    time::Timestamp,
};

/// The level of a bucket at an instant that is never before the last write.
#[derive(Clone, Copy)]
pub(in crate::algorithm) struct Fill<N> {
    /// In units of the rate; below zero in debt.
    pub(in crate::algorithm) level: N,
    pub(in crate::algorithm) at: Timestamp,
    /// How many nanoseconds the bucket has been as full as it gets; `None` for a new key. 0 if the bucket starts full, where the
    /// number does not matter.
    pub(in crate::algorithm) full_for: Option<u64>,
}

/// A rule, with its numbers in one width.
#[derive(Clone, Copy)]
pub(in crate::algorithm) struct Bucket<'a, N> {
    rule: &'a TokenBucket,
    pub(in crate::algorithm) units: Units<N>,
    /// Whether a new key is like one that has been left alone.
    starts_full: bool,
}

impl TokenBucket {
    #[inline]
    pub(in crate::algorithm) fn bucket<N: Width>(&self) -> Bucket<'_, N> {
        Bucket {
            rule: self,
            units: N::units(&self.rate),
            starts_full: self.starts_full(),
        }
    }

    /// Returns the bucket of a rule that is plain; the compiler then leaves out what others need.
    #[inline]
    pub(in crate::algorithm) fn plain(&self) -> Bucket<'_, i64> {
        debug_assert!(self.starts_full());
        Bucket {
            starts_full: true,
            ..self.bucket()
        }
    }

    /// Returns when a bucket that is left alone cannot be told from a new one.
    #[inline]
    pub(in crate::algorithm) fn at_rest_from(&self, state: &BucketLevel) -> Timestamp {
        if self.is_plain {
            self.plain().at_rest_from(state)
        } else {
            self.any_at_rest_from(state)
        }
    }

    /// Returns the same for a bucket that need not be plain.
    fn any_at_rest_from(&self, state: &BucketLevel) -> Timestamp {
        if self.rate.is_narrow() {
            self.bucket::<i64>().at_rest_from(state)
        } else {
            self.bucket::<i128>().at_rest_from(state)
        }
    }
}

impl<N: Width> Bucket<'_, N> {
    /// Returns the fill of a bucket that is new at `at`.
    #[inline]
    pub(in crate::algorithm) fn initial_fill(&self, at: Timestamp) -> Fill<N> {
        Fill {
            level: self.units.price(self.rule.initial),
            at,
            full_for: None,
        }
    }

    /// Returns the state, unless it has expired: then a key is granted its initial fill again.
    #[inline]
    fn remembered<'s>(
        &self,
        state: Option<&'s BucketLevel>,
        now: Timestamp,
    ) -> Option<&'s BucketLevel> {
        state.filter(|state| self.starts_full || now < self.at_rest_from(state))
    }

    #[inline]
    fn fill(&self, state: Option<&BucketLevel>, now: Timestamp) -> Fill<N> {
        match self.remembered(state, now) {
            Some(state) => self.filled(state, now),
            None => self.initial_fill(now),
        }
    }

    /// Returns the fill of a bucket that is remembered, however long it has been full.
    #[inline]
    pub(in crate::algorithm) fn filled(&self, state: &BucketLevel, now: Timestamp) -> Fill<N> {
        let at = now.max(state.written_at);
        let elapsed = at.nanos_since(state.written_at);
        let full = self.units.full;
        let level = self.units.level(state.level, elapsed).min(full);
        if self.starts_full {
            let full_for = Some(0);
            return Fill {
                level,
                at,
                full_for,
            };
        }
        let written = self.units.level(state.level, 0);
        let wait = u64::try_from(self.until_full(written)).unwrap_or(u64::MAX);
        Fill {
            // What exceeds the burst stays until it is spent, unless the rule has changed.
            level: match written > full {
                true => written.min(full.max(self.units.price(self.rule.initial))),
                false => level,
            },
            at,
            full_for: Some(elapsed.saturating_sub(wait)),
        }
    }

    /// Returns the state of a bucket with this level.
    #[inline]
    pub(in crate::algorithm) fn state(&self, level: N, at: Timestamp) -> BucketLevel {
        BucketLevel {
            written_at: at,
            level: self.units.span(level),
        }
    }

    #[inline]
    fn at_rest_from(&self, state: &BucketLevel) -> Timestamp {
        let mut wait = self.until_full(self.units.level(state.level, 0));
        if !self.starts_full {
            wait += u128::from(self.rule.keep);
        }
        let wait = u64::try_from(wait).unwrap_or(u64::MAX);
        Timestamp::from_nanos(state.written_at.as_nanos().saturating_add(wait))
    }

    /// Returns the level after `cost` is paid, if the bucket holds that much.
    #[inline]
    pub(in crate::algorithm) fn pay(&self, level: N, cost: u64) -> Option<N> {
        if cost > self.rule.burst.get() {
            return None;
        }
        let rest = level - self.units.price(cost);
        (rest >= N::ZERO).then_some(rest)
    }

    /// Returns the greatest cost that the bucket can pay.
    #[inline]
    pub(in crate::algorithm) fn tokens(&self, level: N) -> u64 {
        level
            .min(self.units.full)
            .max(N::ZERO)
            .over(self.units.price)
    }

    /// Returns the nanoseconds of filling until the bucket can pay `cost`; `None` is never.
    #[inline]
    pub(in crate::algorithm) fn until(&self, level: N, cost: u64) -> Option<u128> {
        (cost <= self.rule.burst.get()).then(|| self.wait(level, self.units.price(cost)))
    }

    /// Returns the nanoseconds of filling until the bucket is full.
    #[inline]
    pub(in crate::algorithm) fn until_full(&self, level: N) -> u128 {
        self.wait(level, self.units.full)
    }

    /// Returns the nanoseconds of filling from one level to another; 0 if it is reached.
    #[inline]
    fn wait(&self, level: N, target: N) -> u128 {
        self.units.nanos((target - level).max(N::ZERO))
    }

    /// Returns the nanoseconds until a new key is as good as this one; `None` if it is now.
    #[inline]
    pub(in crate::algorithm) fn until_rest(&self, fill: &Fill<N>) -> Option<u128> {
        let wait = self.until_full(fill.level);
        if self.starts_full {
            return (wait > 0).then_some(wait);
        }
        let kept = |full_for| self.rule.keep.saturating_sub(full_for);
        fill.full_for
            .map(|full_for| wait + u128::from(kept(full_for)))
    }

    /// Pays `cost` if the bucket holds it; returns the level that is left, and the decision.
    // Always inlined: most callers read a part of the decision.
    #[inline(always)]
    fn decide(
        &self,
        fill: Fill<N>,
        given_back: u64,
        now: Timestamp,
        cost: Cost,
    ) -> (Option<N>, Decision) {
        let cost = cost.get();
        if let Some(level) = self.pay(fill.level, cost) {
            let full_for = Some(0);
            let left = Fill {
                level,
                full_for,
                ..fill
            };
            let decision = self.answer(Verdict::Allow, now, cost, &left, given_back);
            return (Some(level), decision);
        }
        (None, self.refuse(now, cost, cost, &fill, given_back))
    }

    /// Refuses a call that can come again when the bucket holds `asked`.
    #[inline(always)]
    fn refuse(
        &self,
        now: Timestamp,
        cost: u64,
        asked: u64,
        fill: &Fill<N>,
        given_back: u64,
    ) -> Decision {
        let stalled = fill.at.nanos_since(now);
        let wait = self.until(fill.level, asked);
        self.answer(Verdict::Refuse, now, cost, fill, given_back)
            .with_retry_after(wait.map(|wait| after(stalled, wait)))
    }

    #[inline(always)]
    fn answer(
        &self,
        verdict: Verdict,
        now: Timestamp,
        cost: u64,
        fill: &Fill<N>,
        given_back: u64,
    ) -> Decision {
        let rule = self.rule;
        let decision = Decision::new(verdict, now, cost).with_limit(rule.burst, rule.quota);
        if !(N::IS_NARROW && self.starts_full) {
            return self.with_numbers(decision, fill, given_back);
        }
        let Units { price, full, .. } = self.units;
        let [level, price, full] = [fill.level, price, full].map(|units| units.narrow() as u64);
        decision.with_deferred(Deferred {
            state: [level, price, full, fill.at.nanos_since(now), given_back],
            compute: &DEFERRED,
        })
    }

    /// Computes the numbers of any bucket.
    #[cold]
    fn with_numbers(&self, decision: Decision, fill: &Fill<N>, given_back: u64) -> Decision {
        let stalled = fill.at.nanos_since(decision.at());
        let wait = |wait: Option<u128>| wait.map_or(Duration::ZERO, |wait| after(stalled, wait));
        let remaining = self.tokens(fill.level);
        let charged = decision.is_admitted();
        let decision = decision.with_numbers(Numbers {
            remaining,
            more_after: wait(self.until(fill.level, remaining + 1)),
            reset_after: wait(self.until_rest(fill)),
        });
        if !charged {
            return decision;
        }
        decision.with_position(Position::new(self.full_from(fill), given_back))
    }

    /// Returns when a bucket is full, in nanoseconds rounded down.
    fn full_from(&self, fill: &Fill<N>) -> u64 {
        let lacking = (self.units.full - fill.level).max(N::ZERO);
        // ⌊x / y⌋ is ⌈(x + 1) / y⌉ − 1.
        let nanos = u64::try_from(self.units.nanos(lacking + N::of(1)) - 1);
        fill.at.as_nanos().saturating_add(nanos.unwrap_or(u64::MAX))
    }

    /// Returns the span of a full bucket, in parts of a tick.
    fn full_in_parts(&self) -> i128 {
        self.units.span(self.units.full).parts()
    }

    /// Returns what a bucket lacks, in parts of a tick; below zero if it is overfull.
    fn lacking(&self, level: Ticks) -> i128 {
        self.full_in_parts() - level.parts()
    }

    // Always inlined: less is left of it for a plain bucket.
    #[inline(always)]
    fn step(&self, state: &mut Option<TokenBucketState>, now: Timestamp, cost: Cost) -> Step {
        let mut fill = self.fill(state.as_ref().map(|state| &state.level), now);
        let given_back = match state {
            Some(state) => state.given_back.at(fill.at, fill.level >= self.units.full),
            None => GivenBack::NONE,
        };
        let (level, decision) = self.decide(fill, given_back.nanos(), now, cost);
        if let Some(level) = level {
            let level = self.state(level, fill.at);
            *state = Some(TokenBucketState { level, given_back });
            return Step::Wrote(decision);
        }
        let is_new = fill.full_for.is_none() && !self.starts_full;
        if !is_new || cost.get() > self.rule.burst.get() {
            return Step::Kept(decision);
        }
        // From here on the key fills up: the one refusal that must be remembered.
        fill.full_for = Some(0);
        let level = self.state(fill.level, fill.at);
        *state = Some(TokenBucketState { level, given_back });
        Step::Wrote(self.refuse(now, cost.get(), cost.get(), &fill, given_back.nanos()))
    }

    fn look(&self, state: Option<&TokenBucketState>, now: Timestamp) -> Decision {
        let fill = self.fill(state.map(|state| &state.level), now);
        if self.pay(fill.level, 1).is_some() {
            self.answer(Verdict::Allow, now, 0, &fill, 0)
        } else {
            self.refuse(now, 0, 1, &fill, 0)
        }
    }
}

/// Computes the numbers of a bucket that starts full and is counted in ticks.
const DEFERRED: Compute = Compute {
    remaining,
    // In two's complement: the level may be below zero.
    reset_after: |&[level, _, full, stalled, _]| after_ticks(stalled, full.wrapping_sub(level)),
    more_after,
    position: |&[level, _, full, stalled, given_back]: &DeferredState, at| {
        let lacking = full.wrapping_sub(level) / PER_NANO;
        let end = at.as_nanos().saturating_add(stalled);
        Some(Position::new(end.saturating_add(lacking), given_back))
    },
};

/// Returns the tokens of a bucket that is counted in ticks.
#[inline]
pub(in crate::algorithm) fn remaining(&[level, price, ..]: &DeferredState) -> u64 {
    (level as i64).max(0) as u64 / price
}

/// Returns the wait until such a bucket has one token more; zero if it is full.
#[inline]
pub(in crate::algorithm) fn more_after(
    &[level, price, full, stalled, _]: &DeferredState,
    remaining: u64,
) -> Duration {
    let lacking = ((remaining + 1) * price).wrapping_sub(level);
    after_ticks(stalled, if level == full { 0 } else { lacking })
}

impl Metering for TokenBucket {
    const AHEAD: u64 = 0;

    #[inline]
    fn shape(&self) -> PackedKind {
        PackedKind::bucket(self.full_in_ticks() as u64)
    }

    #[inline(always)]
    fn reads(&self, shape: PackedKind) -> bool {
        shape.is_bucket()
    }

    #[inline(always)]
    fn keeps_to(&self, shape: PackedKind) -> bool {
        self.full_in_ticks() as u64 <= shape.lasts()
    }

    // Always inlined: most callers read a part of the decision.
    #[inline(always)]
    fn step_mark(
        &self,
        mark: PackedState,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision) {
        let fill = Fill {
            level: now.mark().since(mark).min(self.full_in_ticks()),
            at: now.at(),
            full_for: Some(0),
        };
        let (level, decision) = self.plain().decide(fill, 0, now.at(), cost);
        (level.map(|level| now.mark().before(level)), decision)
    }

    #[inline]
    fn step_debt(
        &self,
        debt: Option<PackedState>,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision) {
        self.step_mark(debt.unwrap_or(self.floor(now)), now, cost)
    }

    #[inline]
    fn floor(&self, now: StoreTime) -> PackedState {
        now.mark().before(self.full_in_ticks())
    }
}

impl TokenBucket {
    /// Steps under a rule that need not be plain.
    fn step_any(&self, state: &mut Option<TokenBucketState>, now: Timestamp, cost: Cost) -> Step {
        if self.rate.is_narrow() {
            self.bucket::<i64>().step(state, now, cost)
        } else {
            self.bucket::<i128>().step(state, now, cost)
        }
    }

    /// Returns the level of a full bucket, for a rule whose states are packed.
    #[inline]
    fn full_in_ticks(&self) -> i64 {
        self.bucket::<i64>().units.full
    }
}

impl Algorithm for TokenBucket {
    type State = TokenBucketState;

    #[inline]
    fn step(&self, state: &mut Option<TokenBucketState>, now: Timestamp, cost: Cost) -> Step {
        if self.is_plain {
            self.plain().step(state, now, cost)
        } else {
            self.step_any(state, now, cost)
        }
    }

    fn look(&self, state: Option<&TokenBucketState>, now: Timestamp) -> Decision {
        if self.rate.is_narrow() {
            self.bucket::<i64>().look(state, now)
        } else {
            self.bucket::<i128>().look(state, now)
        }
    }

    /// Gives back what refill has not restored yet; see
    /// [the rule](TokenBucket#correcting-a-charge).
    fn settle(
        &self,
        state: &mut Option<TokenBucketState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        // Corrections are rare, and the widest numbers are enough for all rules.
        let bucket = self.bucket::<i128>();
        if let Some(settled) = bucket.settled(state.as_ref(), charge, now, actual) {
            *state = Some(settled);
        }
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named(Self::NAME) }
    }

    #[inline]
    fn forgettable_at(&self, state: &TokenBucketState) -> Timestamp {
        self.at_rest_from(&state.level)
            .max(state.given_back.until())
    }

    /// A key that is forgotten begins with less than a full bucket.
    #[inline]
    fn may_shrink_when_idle(&self) -> bool {
        self.initial < self.burst.get()
    }

    #[inline]
    fn meter(&self) -> Option<Meter<'_>> {
        self.is_packed().then(|| Meter::of_bucket(self))
    }

    fn mark_of(&self, state: &TokenBucketState, now: StoreTime) -> Option<PackedState> {
        if !self.is_packed() || !state.given_back.is_none() {
            return None;
        }
        let ticks = state.level.level.whole()?;
        now.mark_after(state.level.written_at, ticks.checked_neg()?)
    }

    fn state_of(
        &self,
        mark: PackedState,
        _: PackedKind,
        now: StoreTime,
    ) -> Option<TokenBucketState> {
        let (held, written_at) = (now.mark().since(mark), now.at());
        let level = if self.is_packed() {
            Ticks::new(held.min(self.full_in_ticks()))
        } else {
            let full = self.bucket::<i128>().full_in_parts();
            Ticks::from_parts(Ticks::new(held).parts().min(full))
        };
        Some(BucketLevel { written_at, level }.into())
    }
}

/// Corrections of earlier charges.
///
/// A bucket is full again at its theoretical arrival time, and each charge moves that by the time that its cost takes to
/// refill. So a charge lies on the time axis between the arrival times before and after it. Refill restores it from its
/// beginning on, and only the part behind the last call can be given back, as time. Giving back moves the charges behind it
/// forward. So a key keeps the sum of what was given back, and each charge notes the sum that it found.
impl Bucket<'_, i128> {
    /// Returns the corrected bucket of a charge that has no position; `None` if nothing changes.
    ///
    /// Without a state the bucket is like new.
    pub(in crate::algorithm) fn corrected(
        &self,
        known: Option<&BucketLevel>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> Option<BucketLevel> {
        let end = self.least_end(charge);
        let corrected = self.correct(known, charge, now, actual, Some(end));
        corrected.map(|corrected| corrected.level)
    }

    /// Returns the corrected state of a key; `None` if nothing changes.
    fn settled(
        &self,
        state: Option<&TokenBucketState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> Option<TokenBucketState> {
        let mut given_back = state.map_or(GivenBack::NONE, |state| state.given_back);
        let known = self.remembered(state.map(|state| &state.level), now);
        let moves = known.filter(|known| !self.is_last(known, given_back, charge));
        let end = moves.map(|_| self.end(charge, given_back));
        let corrected = self.correct(known, charge, now, actual, end)?;
        if let Some(before) = moves.filter(|_| corrected.gained > 0) {
            given_back = GivenBack::new(
                given_back
                    .nanos()
                    .saturating_add(nanos_up(corrected.gained)),
                given_back.until().max(self.full_at_latest(before)),
            );
        }
        let level = corrected.level;
        Some(TokenBucketState { level, given_back })
    }

    /// Corrects a charge that ends at `end` on the time axis, in nanoseconds, or later; `None` is behind all others.
    fn correct(
        &self,
        known: Option<&BucketLevel>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
        end: Option<i128>,
    ) -> Option<Corrected> {
        let price = |cost| self.units.price_in_parts(cost);
        let change = price(charge.cost) - price(actual);
        let untouched = known.filter(|known| {
            let written_at = known.written_at;
            written_at == charge.at && now < self.at_rest_from(known)
        });
        if change > 0 {
            return self.give_back(known?, now, change, end.filter(|_| untouched.is_none()));
        }
        let (level, written_at) = match (untouched, known) {
            // Refill is still to come, and will be cut as it always is.
            (Some(known), _) => (known.level, charge.at),
            (None, Some(known)) => {
                let fill = self.filled(known, now);
                (self.units.span(fill.level), fill.at)
            }
            (None, None) => (self.units.span(self.initial_fill(now).level), now),
        };
        (change < 0).then(|| Corrected {
            level: BucketLevel {
                written_at,
                level: self.units.debt_cut(level.parts().saturating_add(change)),
            },
            gained: change,
        })
    }

    /// Gives back so many parts of a tick of a charge that ends at `end`.
    ///
    /// No call came after the last write. Until then refill has restored what lay before it.
    fn give_back(
        &self,
        known: &BucketLevel,
        now: Timestamp,
        parts: i128,
        end: Option<i128>,
    ) -> Option<Corrected> {
        let (full, written_at) = (self.full_in_parts(), known.written_at);
        let level = known.level.parts();
        // To what is above the burst, no refill has come.
        let is_overfull = level > full;
        let (parts, most) = match end {
            Some(end) if !is_overfull => {
                let ahead = end.saturating_sub(written_at.as_nanos().into());
                (parts.min(ahead.saturating_mul(PARTS_PER_NANO)), full)
            }
            _ => (
                parts,
                full.max(self.units.price_in_parts(self.rule.initial)),
            ),
        };
        let is_full = !is_overfull && self.filled(known, now).level >= self.units.full;
        let gained = level.saturating_add(parts).min(most) - level;
        (!is_full && gained > 0).then(|| Corrected {
            level: BucketLevel {
                written_at,
                level: Ticks::from_parts(level + gained),
            },
            gained,
        })
    }

    /// Returns where a charge ends on the time axis, in nanoseconds rounded down: it may have been moved by all that was given back
    /// since.
    fn end(&self, charge: &Charge, given_back: GivenBack) -> i128 {
        let end = charge.position.map_or(0, |position| {
            let since = given_back.nanos().saturating_sub(position.given_back());
            position.end().saturating_sub(since)
        });
        i128::from(end).max(self.least_end(charge))
    }

    /// Returns where a charge ends on the time axis at least, in nanoseconds: as if the bucket had been full.
    fn least_end(&self, charge: &Charge) -> i128 {
        let price = self.units.price_in_parts(charge.cost);
        i128::from(charge.at.as_nanos()) + price / PARTS_PER_NANO
    }

    /// Returns whether no charge lies behind this one on the time axis.
    fn is_last(&self, before: &BucketLevel, given_back: GivenBack, charge: &Charge) -> bool {
        charge.position.is_some_and(|position| {
            // Each charge behind it takes the time of a unit at least; a script rounds by less than a microsecond.
            let least = self.units.price_in_parts(1).min(1000 * PARTS_PER_NANO);
            let next = i128::from(position.end()) * PARTS_PER_NANO + least;
            let full_at = i128::from(before.written_at.as_nanos()) * PARTS_PER_NANO;
            position.given_back() == given_back.nanos()
                && full_at.saturating_add(self.lacking(before.level)) < next
        })
    }

    /// Returns when a bucket that is remembered is full, rounded up.
    fn full_at_latest(&self, known: &BucketLevel) -> Timestamp {
        let nanos = known.written_at.as_nanos();
        Timestamp::from_nanos(nanos.saturating_add(nanos_up(self.lacking(known.level))))
    }
}

/// A bucket after a correction.
struct Corrected {
    level: BucketLevel,
    /// How much fuller it is than before, in parts of a tick; below zero if more was taken.
    gained: i128,
}

/// Returns parts of a tick in nanoseconds, rounded up; 0 if they are below zero.
fn nanos_up(parts: i128) -> u64 {
    let nanos = (parts.max(0) as u128).div_ceil(PARTS_PER_NANO as u128);
    u64::try_from(nanos).unwrap_or(u64::MAX)
}
