//! A state taken out of the table, or of a new key, while it is decided about.

use super::{
    Inner,
    slot::MapSlot,
    table::{Claim, Words},
};
use crate::{
    algorithm::{
        Algorithm, Step,
        packed::{PackedKind, PackedRule, StoreTime},
    },
    decision::Cost,
    store::Settlement,
    time::{Clock, Timestamp},
};

/// A copy of the state of a key that has a slot in the table or is new, to be stepped and then stored.
#[derive(Clone)]
pub(super) struct WorkingState<S> {
    pub(super) slot: MapSlot<S>,
    /// The packed kind of the longest rule that wrote the state. `None` if one of these rules does not pack its states.
    packed_kind: Option<PackedKind>,
    /// `true` if the rule counts the calls of a sliding window in other slices. The instant of their last write was not packed, so they
    /// count as of now.
    is_counted_again: bool,
}

impl<S> WorkingState<S> {
    /// Creates that of a new key, from the state it inherits, if any.
    pub(super) fn new(state: Option<S>) -> Self {
        Self::of(MapSlot::until(state, Timestamp::default()))
    }

    /// Wraps a slot that no rule has written yet.
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
            // Stored as it is, in the map, so that the next call does not count the same calls even later.
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
        self.packed_kind =
            packed_kinds.map(|(packed_kind, meter)| packed_kind.or_longer(meter.packed_kind()));
    }
}

impl<S: Clone, C: Clock> Inner<S, C> {
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
        let until = match packed_kind.is_bucket() || is_counted_again {
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
        self.table
            .word(packed, working.packed_kind?)
            .map(Words::from)
    }

    /// Writes a state as two words, and when it expires. Returns `None` if it does not fit.
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
