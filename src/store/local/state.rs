//! A state and the time at which it expires, and the copy that is decided about.
//!
//! A key has a state of each kind of rule that charges it (`Algorithm::state_kind`), because two
//! releases, or two requests, may bring rules of different algorithms. With one state for all, each
//! rule would treat the other's as foreign and start fresh: no limit at all. So the client gets at
//! most the limit of each kind. A kind is a hash of the algorithm's name, not of its numbers, so a
//! change of numbers carries usage over. A `reset` names no rule, so the store lists the kinds that
//! it has seen.
//!
//! A key is remembered until no rule that charged it sees a debt. A client that chooses the
//! endpoint chooses the rule, so the expiry of a shorter rule must not make a longer rule's debt
//! forgotten. A charge under the shorter rule still converts the state to the memory of that rule.
//! In the table the kind of a bucket's word becomes no shorter while the longer debt lasts. In the
//! map a slot keeps a date, which costs 8 bytes.

use super::{
    LocalInner,
    table::{Claim, Words},
};
use crate::{
    algorithm::{
        Algorithm, Step,
        packed::{InMemory, PackedKind, PackedRule, StoreTime},
    },
    decision::Cost,
    store::{Settlement, engine::postponed},
    time::{Clock, Timestamp},
};

/// The state of a key in the map.
///
/// Rules travel with the calls, so several rules may charge one key. A bucket that is full under a
/// short rule may not be full under a longer one. So a slot expires when no rule that charged it
/// sees usage in it.
#[derive(Clone)]
pub(super) struct MapSlot<S> {
    pub(super) state: Option<S>,
    until: Timestamp,
}

impl<S> MapSlot<S> {
    /// Creates a slot that does not expire before `until`, whichever rules write it from now on.
    pub(super) fn until(state: Option<S>, until: Timestamp) -> Self {
        Self { state, until }
    }

    /// Creates the slot of a key that only `rule` has charged.
    pub(super) fn of<A: Algorithm<State = S>>(state: S, rule: &A) -> Self {
        Self {
            until: rule.forgettable_at(&state),
            state: Some(state),
        }
    }

    /// Returns the time from which on the state no longer matters to any rule that charged it.
    pub(super) fn expires_at(&self) -> Timestamp {
        self.until
    }

    /// Returns `true` if the state no longer matters to any rule that charged it.
    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        // The last instant means never.
        self.until <= now && self.until < Timestamp::MAX
    }

    #[inline]
    pub(super) fn step<A: Algorithm<State = S>>(
        &mut self,
        rule: &A,
        now: Timestamp,
        cost: Cost,
    ) -> Step {
        let before = self.matters_until(rule);
        let step = rule.step(&mut self.state, now, cost);
        if let Step::Wrote(_) = step {
            self.extend_until(before, self.matters_until(rule), now);
        }
        step
    }

    /// Corrects a charge. Returns `true` if the state mattered to the rule, before or after.
    pub(super) fn settle<A: Algorithm<State = S>>(
        &mut self,
        settlement: &Settlement<'_, A>,
        now: Timestamp,
    ) -> bool {
        let Settlement {
            rule,
            charge,
            actual,
            ..
        } = settlement;
        let before = self.matters_until(*rule);
        // A state that no longer matters to this rule has no units to refund under it. It may still
        // matter to another rule. A renewal holds units again that were over.
        let renews = *actual == charge.cost && charge.departs() > charge.at;
        if before <= now && *actual <= charge.cost && !renews {
            return false;
        }
        rule.settle(&mut self.state, charge, now, *actual);
        let after = self.matters_until(*rule);
        if before.max(after) <= now {
            return false;
        }
        self.extend_until(before, after, now);
        true
    }

    /// Returns `true` if a settlement refunds nothing, because too many have refunded before.
    pub(super) fn forgets<A: Algorithm<State = S>>(
        &self,
        settlement: &Settlement<'_, A>,
        now: Timestamp,
    ) -> bool {
        let (charge, actual) = (&settlement.charge, settlement.actual);
        settlement
            .rule
            .forgets(self.state.as_ref(), charge, now, actual)
    }

    /// Returns the time until which the state matters to a rule.
    #[inline]
    fn matters_until<A: Algorithm<State = S>>(&self, rule: &A) -> Timestamp {
        let state = self.state.as_ref();
        state.map_or(Timestamp::default(), |state| rule.forgettable_at(state))
    }

    /// Updates the expiry after a rule wrote the state. The state mattered to that rule until
    /// `before`, and now matters to it until `after`.
    #[inline]
    fn extend_until(&mut self, before: Timestamp, after: Timestamp, now: Timestamp) {
        self.until = match self.state {
            Some(_) => {
                let (until, before) = (self.until.as_nanos(), before.as_nanos());
                Timestamp::from_nanos(postponed(until, before, after.as_nanos(), now.as_nanos()))
            }
            // It stays in the map for a while, as any expired state.
            None => after.max(now),
        };
    }
}

/// A copy of the state of a key that has a slot in the table or is new, to be stepped and then
/// stored.
#[derive(Clone)]
pub(super) struct WorkingState<S> {
    pub(super) slot: MapSlot<S>,
    /// The packed kind of the longest rule that wrote the state. `None` if one of these rules has
    /// no [packed rule](InMemory::packed_rule).
    packed_kind: Option<PackedKind>,
    /// `true` if the rule counts the calls of a sliding window in other slices. The instant of
    /// their last write was not packed, so they count as of now.
    is_counted_again: bool,
}

impl<S> WorkingState<S> {
    /// Creates the state of a new key, from the state that it inherits, if any.
    pub(super) fn new(state: Option<S>) -> Self {
        Self::of(MapSlot::until(state, Timestamp::default()))
    }

    /// Wraps a slot that no rule has written since.
    pub(super) fn of(slot: MapSlot<S>) -> Self {
        Self {
            slot,
            packed_kind: Some(PackedKind::DEBT),
            is_counted_again: false,
        }
    }

    pub(super) fn step<A: Algorithm<State = S>>(
        &mut self,
        rule: &A,
        now: Timestamp,
        cost: Cost,
    ) -> Step {
        match self.slot.step(rule, now, cost) {
            // Stored as it is, in the map, so that the next call does not count the same calls even
            // later.
            Step::Kept(refusal) if self.is_counted_again => Step::Wrote(refusal),
            Step::Kept(refusal) => Step::Kept(refusal),
            step => {
                self.written_by(rule);
                step
            }
        }
    }

    /// Corrects a charge, as [`MapSlot::settle`] does.
    pub(super) fn settle<A: Algorithm<State = S>>(
        &mut self,
        settlement: &Settlement<'_, A>,
        now: Timestamp,
    ) -> bool {
        let settled = self.slot.settle(settlement, now);
        if settled {
            self.written_by(settlement.rule);
        }
        settled
    }

    fn written_by<A: Algorithm<State = S>>(&mut self, rule: &A) {
        let packed_kinds = self.packed_kind.zip(rule.packed_rule());
        self.packed_kind = packed_kinds
            .map(|(packed_kind, packed_rule)| packed_kind.or_longer(packed_rule.packed_kind()));
    }
}

impl<S: Clone, C: Clock> LocalInner<S, C> {
    /// Reads the state in a slot of the table, for a rule.
    pub(super) fn working_state<A: Algorithm<State = S>>(
        &self,
        rule: &A,
        claim: &Claim<'_>,
        now: StoreTime,
    ) -> WorkingState<S> {
        let Words { word, state } = self.table.words_of(claim);
        if let Some(words) = state {
            let until = now.instant_of(self.table.end(word));
            return WorkingState::of(MapSlot::until(rule.read_two_words(words, now), until));
        }
        let (state, packed_kind) = (self.unpack(rule, word, now), self.table.packed_kind(word));
        let is_counted_again =
            packed_kind.is_counted_again_by(rule.packed_rule().map(PackedRule::packed_kind));
        // Other packed states matter as long to each rule that reads them.
        let has_end = packed_kind.is_bucket() || packed_kind.is_in_flight() || is_counted_again;
        let until = match has_end {
            true => self.table.matters_until(word, now),
            false => Timestamp::default(),
        };
        let matters = until > now.at();
        WorkingState {
            slot: MapSlot::until(state, until),
            packed_kind: Some(match matters {
                true => packed_kind,
                false => PackedKind::DEBT,
            }),
            is_counted_again: is_counted_again && matters,
        }
    }

    /// Packs a state into the words of a slot in the table. Returns `None` if it does not fit.
    pub(super) fn words<A: Algorithm<State = S>>(
        &self,
        rule: &A,
        working: &WorkingState<S>,
        now: StoreTime,
    ) -> Option<Words> {
        if rule.two_buckets().is_some() {
            return self.two_words(rule, &working.slot, now);
        }
        let packed = rule.pack(working.slot.state.as_ref()?, now)?;
        let packed_kind = match rule.packed_in_flight() {
            Some(_) => PackedKind::IN_FLIGHT,
            None => working.packed_kind?,
        };
        self.table.word(packed, packed_kind).map(Words::from)
    }

    /// Packs a state into two words, and its expiry into the word beside them. Returns `None` if it
    /// does not fit.
    fn two_words<A: Algorithm<State = S>>(
        &self,
        rule: &A,
        slot: &MapSlot<S>,
        now: StoreTime,
    ) -> Option<Words> {
        let state = rule.to_two_words(slot.state.as_ref()?, now)?;
        let last = now.packed_after(slot.expires_at(), -1)?;
        let word = self.table.word_of_two(last)?;
        let state = Some(state);
        Some(Words { word, state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        algorithm::{SlidingLog, TokenBucket},
        decision::Charge,
        key::Key,
        policy::Policy,
    };

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * SECOND)
    }

    fn step<A: Algorithm>(slot: &mut MapSlot<A::State>, rule: &A, seconds: u64, cost: u64) -> Step {
        slot.step(rule, at(seconds), Cost::new(cost).unwrap())
    }

    #[test]
    fn a_charge_by_a_shorter_rule_postpones_what_a_longer_one_sees() {
        let bucket = |burst| TokenBucket::per_second(1).burst(burst);
        let (long, short) = (bucket(100), bucket(5));
        let mut slot = MapSlot::until(None, Timestamp::default());
        step(&mut slot, &long, 0, 95);
        assert_eq!(slot.until, at(95));
        step(&mut slot, &short, 0, 5);
        assert_eq!(slot.until, at(100));
        for second in 1..50 {
            step(&mut slot, &short, second, 1);
            assert_eq!(slot.until, at(100 + second));
        }
        // Once the other rule no longer matters, the expiry is that of this rule alone.
        step(&mut slot, &long, 200, 10);
        assert_eq!(slot.until, at(210));
    }

    #[test]
    fn a_log_is_remembered_for_the_longest_window_that_counts_it() {
        let (long, short) = (SlidingLog::per_minute(9), SlidingLog::per_second(9));
        let mut slot = MapSlot::until(None, Timestamp::default());
        step(&mut slot, &long, 0, 1);
        for second in [0, 10, 50] {
            step(&mut slot, &short, second, 1);
            assert_eq!(slot.until, at(60 + second));
        }
    }

    #[test]
    fn what_is_given_back_moves_no_date_that_another_rule_has_set() {
        let bucket = |burst| TokenBucket::per_second(1).burst(burst);
        for settled_by in [bucket(5), bucket(100)] {
            let mut slot = MapSlot::until(None, Timestamp::default());
            step(&mut slot, &bucket(100), 0, 95);
            step(&mut slot, &bucket(5), 0, 1);
            assert_eq!(slot.until, at(96));
            let settlement = Settlement {
                policy: &Policy::default(),
                rule: &settled_by,
                key: Key::GLOBAL,
                charge: Charge::new(at(0), 1),
                actual: 0,
                is_grant: false,
            };
            assert!(slot.settle(&settlement, at(0)));
            assert_eq!(slot.until, at(96));
        }
    }
}
