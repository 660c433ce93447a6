//! The step of a token bucket, and the correction of its charges.
//!
//! A state is the instant of the last write and how long the bucket had been filling by then. The
//! instant lets time stand still when a clock steps back. Credit as time does not depend on the
//! rule, so a rule can change under it.
//!
//! A bucket whose initial fill is not its burst is forgotten a day after it was full, and only then
//! gets its initial fill again. Until then `reset_after` counts. `remaining` never exceeds the
//! greatest cost that is not always refused, also of an overfull bucket.

use std::time::Duration;

use super::TokenBucket;
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        bucket::{Bucket, BucketLevel, Fill, more_after, remaining},
        packed::{BuiltIn, Form, InWords, PackedKind, PackedState, StepPacked, StoreTime},
        ticks::{PER_MICRO, PER_NANO, after, after_ticks, nanos_up},
    },
    decision::{
        Charge, Compute, Cost, Decision, Deferred, DeferredState, Numbers, Position, Verdict,
    },
    time::Timestamp,
};

/// The state of a key under a [`TokenBucket`]: the level at the last write, and the time that was
/// refunded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucketState {
    pub(super) level: BucketLevel,
    pub(super) refunded: Refunded,
}

impl TokenBucketState {
    #[inline]
    fn new(level: i64, written_at: Timestamp, refunded: Refunded) -> Self {
        let level = BucketLevel { written_at, level };
        Self { level, refunded }
    }
}

impl From<BucketLevel> for TokenBucketState {
    #[inline]
    fn from(level: BucketLevel) -> Self {
        Self {
            level,
            refunded: Refunded::NONE,
        }
    }
}

impl Bucket<'_> {
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
    fn fill(&self, state: Option<&BucketLevel>, now: Timestamp) -> Fill {
        match self.remembered(state, now) {
            Some(state) => self.filled(state, now),
            None => self.initial_fill(now),
        }
    }

    /// Pays `cost` if the bucket holds it; returns the level that is left, and the decision.
    // Always inlined: most callers read only a part of the decision, and the compiler drops the
    // rest.
    #[inline(always)]
    fn decide(
        &self,
        fill: Fill,
        refunded: u64,
        now: Timestamp,
        cost: Cost,
    ) -> (Option<i64>, Decision) {
        let cost = cost.get();
        if let Some(level) = self.pay(fill.level, cost) {
            let full_for = Some(0);
            let left = Fill {
                level,
                full_for,
                ..fill
            };
            let decision = self.answer(Verdict::Allow, now, cost, &left, refunded);
            return (Some(level), decision);
        }
        (None, self.refuse(now, cost, cost, &fill, refunded))
    }

    /// Returns a refusal whose `retry_after` ends when the bucket holds `asked`.
    #[inline(always)]
    fn refuse(
        &self,
        now: Timestamp,
        cost: u64,
        asked: u64,
        fill: &Fill,
        refunded: u64,
    ) -> Decision {
        let stalled = fill.at.nanos_since(now);
        let wait = self.until(fill.level, asked);
        self.answer(Verdict::Refuse, now, cost, fill, refunded)
            .with_retry_after(wait.map(|wait| after(stalled, wait)))
    }

    #[inline(always)]
    fn answer(
        &self,
        verdict: Verdict,
        now: Timestamp,
        cost: u64,
        fill: &Fill,
        refunded: u64,
    ) -> Decision {
        let rule = self.rule;
        let decision = Decision::new(verdict, now, cost).with_limit(rule.most, rule.quota);
        if !self.starts_full {
            return self.with_numbers(decision, fill, refunded);
        }
        let [level, price, full] = self.above_floor(fill.level);
        decision.with_deferred(Deferred {
            state: [level, price, full, fill.at.nanos_since(now), refunded, 0],
            compute: &DEFERRED,
        })
    }

    /// Computes the numbers of any bucket.
    #[cold]
    fn with_numbers(&self, decision: Decision, fill: &Fill, refunded: u64) -> Decision {
        let stalled = fill.at.nanos_since(decision.at());
        let wait = |wait: Option<u128>| wait.map_or(Duration::ZERO, |wait| after(stalled, wait));
        let remaining = self.tokens(fill.level);
        let charged = decision.is_admitted();
        let decision = decision.with_numbers(Numbers {
            remaining,
            more_after: wait(self.until(fill.level, remaining + 1)),
            reset_after: wait(self.until_rest(fill)),
        });
        let decision = decision.with_full_after(wait(Some(self.until_full(fill.level))));
        if !charged {
            return decision;
        }
        decision.with_position(Position::new(self.full_from(fill), refunded))
    }

    /// Returns when a bucket is full, in nanoseconds rounded down.
    fn full_from(&self, fill: &Fill) -> u64 {
        let lacking = (self.full() - fill.level).max(0) as u64;
        fill.at.as_nanos().saturating_add(lacking / PER_NANO)
    }

    // Always inlined, so that the compiler drops the parts that a plain bucket does not need.
    #[inline(always)]
    fn step(&self, state: &mut Option<TokenBucketState>, now: Timestamp, cost: Cost) -> Step {
        let mut fill = self.fill(state.as_ref().map(|state| &state.level), now);
        let refunded = match state {
            Some(state) => state.refunded.at(fill.at, fill.level >= self.full()),
            None => Refunded::NONE,
        };
        let (level, decision) = self.decide(fill, refunded.nanos, now, cost);
        if let Some(level) = level {
            *state = Some(TokenBucketState::new(level, fill.at, refunded));
            return Step::Wrote(decision);
        }
        let is_new = fill.full_for.is_none() && !self.starts_full;
        if !is_new || cost.get() > self.rule.most.get() {
            return Step::Kept(decision);
        }
        // From here on the key fills up: the one refusal that must be remembered.
        fill.full_for = Some(0);
        *state = Some(TokenBucketState::new(fill.level, fill.at, refunded));
        Step::Wrote(self.refuse(now, cost.get(), cost.get(), &fill, refunded.nanos))
    }

    /// Refuses a cost, or only looks if the bucket holds it because another rule refuses.
    pub(in crate::algorithm) fn refuse_or_look(
        &self,
        fill: &Fill,
        now: Timestamp,
        cost: Cost,
    ) -> Decision {
        let cost = cost.get();
        match self.pay(fill.level, cost) {
            Some(_) => self.answer(Verdict::Allow, now, 0, fill, 0),
            None => self.refuse(now, cost, cost, fill, 0),
        }
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
    reset_after: |&[level, _, full, stalled, ..]| after_ticks(stalled, full.wrapping_sub(level)),
    more_after,
    position: |&[level, _, full, stalled, refunded, _]: &DeferredState, at| {
        let lacking = full.wrapping_sub(level) / PER_NANO;
        let end = at.as_nanos().saturating_add(stalled);
        Some(Position::new(end.saturating_add(lacking), refunded))
    },
};

impl StepPacked for TokenBucket {
    const AHEAD: u64 = 0;

    #[inline]
    fn packed_kind(&self) -> PackedKind {
        PackedKind::bucket(self.full_in_ticks() as u64)
    }

    #[inline(always)]
    fn reads(&self, packed_kind: PackedKind) -> bool {
        packed_kind.is_bucket()
    }

    #[inline(always)]
    fn keeps_to(&self, packed_kind: PackedKind) -> bool {
        self.full_in_ticks() as u64 <= packed_kind.lasts()
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
        let level = now.packed().since(packed).min(self.full_in_ticks());
        let fill = Fill::of_plain(level, now.at());
        let (level, decision) = self.plain().decide(fill, 0, now.at(), cost);
        (level.map(|level| now.packed().before(level)), decision)
    }

    #[inline]
    fn step_debt(
        &self,
        debt: Option<PackedState>,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision) {
        self.step_packed(debt.unwrap_or(self.floor(now)), now, cost)
    }

    #[inline]
    fn floor(&self, now: StoreTime) -> PackedState {
        now.packed().before(self.full_in_ticks())
    }
}

impl TokenBucket {
    /// Steps under a rule that need not start full.
    fn step_any(&self, state: &mut Option<TokenBucketState>, now: Timestamp, cost: Cost) -> Step {
        self.bucket().step(state, now, cost)
    }

    /// Returns the level of a full bucket.
    #[inline]
    pub(crate) fn full_in_ticks(&self) -> i64 {
        self.rate.full
    }

    /// Packs a level; `None` if it does not fit.
    #[inline]
    pub(in crate::algorithm) fn pack_level(
        &self,
        level: &BucketLevel,
        now: StoreTime,
    ) -> Option<PackedState> {
        if !self.is_packed() {
            return None;
        }
        now.packed_after(level.written_at, -level.level)
    }
}

impl Algorithm for TokenBucket {
    type State = TokenBucketState;

    #[inline]
    fn step(&self, state: &mut Option<TokenBucketState>, now: Timestamp, cost: Cost) -> Step {
        if self.starts_full() {
            self.plain().step(state, now, cost)
        } else {
            self.step_any(state, now, cost)
        }
    }

    fn look(&self, state: Option<&TokenBucketState>, now: Timestamp) -> Decision {
        self.bucket().look(state, now)
    }

    /// Refunds what refill has not restored yet; see
    /// [the rule](TokenBucket#correcting-a-charge).
    fn settle(
        &self,
        state: &mut Option<TokenBucketState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        if let Some(settled) = self.bucket().settled(state.as_ref(), charge, now, actual) {
            *state = Some(settled);
        }
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named(Self::NAME) }
    }

    #[inline]
    fn forgettable_at(&self, state: &TokenBucketState) -> Timestamp {
        self.at_rest_from(&state.level).max(state.refunded.until)
    }

    fn grant_slack(&self) -> Option<u64> {
        // The tokens of a minute.
        let minute = Duration::from_secs(60).as_nanos();
        let tokens =
            u128::from(self.quota.amount()) * minute / u128::from(self.quota.period_nanos());
        Some(
            u64::try_from(tokens)
                .unwrap_or(u64::MAX)
                .min(self.capacity()),
        )
    }

    /// Returns `true` if a new key begins with less than a full bucket, because an idle key is
    /// forgotten.
    #[inline]
    fn may_shrink_when_idle(&self) -> bool {
        self.initial < self.burst.get()
    }

    #[inline]
    fn built_in(&self) -> BuiltIn<'_, TokenBucketState> {
        BuiltIn::new(Form::Bucket(self), self)
    }
}

impl InWords<TokenBucketState> for TokenBucket {
    fn write_word(&self, state: &TokenBucketState, now: StoreTime) -> Option<PackedState> {
        match state.refunded.is_none() {
            true => self.pack_level(&state.level, now),
            false => None,
        }
    }

    fn read_word(
        &self,
        packed: PackedState,
        _: PackedKind,
        now: StoreTime,
    ) -> Option<TokenBucketState> {
        let level = now.packed().since(packed).min(self.full_in_ticks());
        let written_at = now.at();
        Some(BucketLevel { written_at, level }.into())
    }
}

/// Time that was refunded to a key while other charges may have been behind it.
///
/// A refund moves the charges behind the corrected one forward on the time axis of the bucket. So a
/// key keeps the sum of its refunds, and each charge notes the sum that it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refunded {
    /// The sum, in nanoseconds rounded up, modulo [`Position::SUM`] + 1.
    pub(super) nanos: u64,
    /// The latest instant at which the last charge that was moved can pass.
    pub(super) until: Timestamp,
}

impl Refunded {
    pub(super) const NONE: Self = Self::new(0, Timestamp::from_nanos(0));

    pub(super) const fn new(nanos: u64, until: Timestamp) -> Self {
        let nanos = nanos & Position::SUM;
        Self { nanos, until }
    }

    #[inline]
    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Returns the part that must be remembered at `at`: none after all charges have passed.
    #[inline]
    pub(super) fn at(self, at: Timestamp, is_full: bool) -> Self {
        if is_full && self.until <= at {
            Self::NONE
        } else {
            self
        }
    }
}

impl Bucket<'_> {
    /// Returns the corrected state of a key; `None` if nothing changes.
    fn settled(
        &self,
        state: Option<&TokenBucketState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> Option<TokenBucketState> {
        let mut refunded = state.map_or(Refunded::NONE, |state| state.refunded);
        let known = self.remembered(state.map(|state| &state.level), now);
        let moves = known.filter(|known| !self.is_last(known, refunded, charge));
        let is_if_last = charge.position.is_some_and(Position::is_if_last);
        if is_if_last && moves.is_some() && actual < charge.cost {
            return None;
        }
        let end = moves.map(|_| self.end(charge, refunded));
        let corrected = self.correct(known, charge, now, actual, end)?;
        if let Some(before) = moves.filter(|_| corrected.gained > 0) {
            refunded = Refunded::new(
                refunded.nanos + nanos_up(corrected.gained),
                refunded.until.max(self.full_at_latest(before)),
            );
        }
        let level = corrected.level;
        Some(TokenBucketState { level, refunded })
    }

    /// Returns the end of a charge on the time axis, in nanoseconds rounded down, moved by all that
    /// was refunded since.
    fn end(&self, charge: &Charge, refunded: Refunded) -> i128 {
        let end = charge.position.map_or(0, |position| {
            let since = refunded.nanos.wrapping_sub(position.refunded()) & Position::SUM;
            position.end().saturating_sub(since)
        });
        i128::from(end).max(self.least_end(charge))
    }

    /// Returns `true` if no charge lies behind this one on the time axis.
    fn is_last(&self, before: &BucketLevel, refunded: Refunded, charge: &Charge) -> bool {
        charge.position.is_some_and(|position| {
            // Each charge behind it takes the time of a unit at least; a script rounds by less than
            // a microsecond.
            let least = self.rule.rate.price.min(PER_MICRO as i64);
            let ticks = |nanos: u64| i128::from(nanos) * i128::from(PER_NANO);
            let next = ticks(position.end()) + i128::from(least);
            let full_at = ticks(before.written_at.as_nanos()) + i128::from(self.lacking(before));
            position.refunded() == refunded.nanos && full_at < next
        })
    }

    /// Returns what a bucket lacks, in ticks; below zero if it is overfull.
    fn lacking(&self, known: &BucketLevel) -> i64 {
        self.full() - known.level
    }

    /// Returns when a bucket with a state is full, rounded up.
    fn full_at_latest(&self, known: &BucketLevel) -> Timestamp {
        let nanos = known.written_at.as_nanos();
        Timestamp::from_nanos(nanos.saturating_add(nanos_up(self.lacking(known).max(0))))
    }
}
