//! A state taken out of the table, or of a new key, while it is decided about.

use super::{Inner, slot::MapSlot, table::Word};
use crate::{
    algorithm::{
        Algorithm, Step,
        packed::{PackedKind, StoreTime},
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
        }
    }

    pub(super) fn step<A: Algorithm<State = S>>(
        &mut self,
        rule: &A,
        now: Timestamp,
        cost: Cost,
    ) -> Step {
        let step = self.slot.step(rule, now, cost);
        if !matches!(step, Step::Kept(_)) {
            self.written_by(rule);
        }
        step
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
        let packed_kinds = self.packed_kind.zip(rule.meter());
        self.packed_kind =
            packed_kinds.map(|(packed_kind, meter)| packed_kind.or_longer(meter.packed_kind()));
    }
}

impl<S: Clone, C: Clock> Inner<S, C> {
    /// Unpacks a word of the table for a rule.
    pub(super) fn working_state<A: Algorithm<State = S>>(
        &self,
        rule: &A,
        word: Word,
        now: StoreTime,
    ) -> WorkingState<S> {
        let (state, packed_kind) = (self.unpack(rule, word, now), self.table.packed_kind(word));
        let until = self.table.protected_until(word, now);
        WorkingState {
            slot: MapSlot::until(state, until),
            packed_kind: Some(if until > now.at() {
                packed_kind
            } else {
                PackedKind::DEBT
            }),
        }
    }

    /// Packs a state into a word of the table. Returns `None` if it cannot be packed.
    pub(super) fn word<A: Algorithm<State = S>>(
        &self,
        rule: &A,
        working: &WorkingState<S>,
        now: StoreTime,
    ) -> Option<Word> {
        let packed = rule.pack(working.slot.state.as_ref()?, now)?;
        self.table.word(packed, working.packed_kind?)
    }
}
