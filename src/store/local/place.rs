//! Where states go: into the table if they are marks, into the map otherwise, and what
//! happens when there is no room.

use super::{
    AtCapacity, Inner,
    map::{Place, Shard, Slot},
    stats::Counters,
    table::{Claim, Placed, Word},
};
use crate::{
    algorithm::{Algorithm, Mark, Moment},
    clock::{Clock, Timestamp},
    decision::Decision,
};

/// There is no room for a newcomer.
pub(super) struct Full;

impl<S: Clone, C: Clock> Inner<S, C> {
    /// How often a newcomer tries to push another key out, while other threads do the same.
    pub(super) const PUSHES: usize = 4;

    /// The time of the store, which never falls.
    #[inline]
    pub(super) fn moment(&self) -> Moment {
        let mut at = self.clock.now();
        if !self.clock.is_monotone() {
            at = self.not_before_the_newest(at);
        }
        Moment::new(at, self.made)
    }

    fn not_before_the_newest(&self, at: Timestamp) -> Timestamp {
        use std::sync::atomic::Ordering::Relaxed;
        // Relaxed: all that counts is that this one number never falls.
        let newest = self.newest.fetch_max(at.as_nanos(), Relaxed);
        Timestamp::from_nanos(newest).max(at)
    }

    /// What is remembered of a key whose shard is locked, or what it inherits.
    pub(super) fn recall<A: Algorithm<State = S>>(
        &self,
        shard: &mut Shard<'_, S>,
        place: Place,
        rule: &A,
        now: Moment,
    ) -> Option<S> {
        if let Some(word) = self.table.look(place.fingerprint) {
            return rule.state_of(word.mark(), now);
        }
        if let Some(slot) = shard.get_mut(place) {
            return slot.state.clone();
        }
        self.debtor(rule, self.table.owed(place.fingerprint), now)
    }

    /// The state in which a newcomer comes that inherits a debt.
    pub(super) fn debtor<A: Algorithm<State = S>>(
        &self,
        rule: &A,
        debt: Option<Mark>,
        now: Moment,
    ) -> Option<S> {
        let state = rule.state_of(debt?, now)?;
        let units = |state| rule.look(state, now.at()).remaining();
        // A rule with a meter starts full. Another one may start with less than a debt leaves.
        let starts_lower = rule.meter().is_none() && units(None) < units(Some(&state));
        (!starts_lower).then_some(state)
    }

    fn word<A: Algorithm<State = S>>(&self, rule: &A, state: &S, now: Moment) -> Option<Word> {
        self.table.word(rule.mark_of(state, now)?, rule.meter()?)
    }

    /// Remembers a newcomer, and forgets what can be forgotten of a few of its neighbours.
    pub(super) fn insert<A: Algorithm<State = S>>(
        &self,
        shard: &mut Shard<'_, S>,
        place: Place,
        rule: &A,
        state: S,
        now: Moment,
    ) -> Result<(), Full> {
        self.forgotten(shard.forget_some(now.at()));
        self.accommodate(shard, place, rule, state, now)?;
        self.inserted(1);
        Ok(())
    }

    /// Finds a newcomer a place; it is not counted as inserted yet.
    pub(super) fn accommodate<A: Algorithm<State = S>>(
        &self,
        shard: &mut Shard<'_, S>,
        place: Place,
        rule: &A,
        state: S,
        now: Moment,
    ) -> Result<(), Full> {
        let placed = self.word(rule, &state, now).and_then(|word| {
            let grow = || self.room.take();
            self.table.place(place.fingerprint, word, now, grow)
        });
        match placed {
            Some(Placed::Free) => {}
            Some(Placed::Forgotten) => Counters::add(&self.counters.forgotten, 1),
            None if self.room.take() => self.insert_in_map(shard, place, rule, state),
            None => return Err(Full),
        }
        Ok(())
    }

    /// Remembers a new state of a key that the table has, there or in the map.
    pub(super) fn replace<A: Algorithm<State = S>>(
        &self,
        claim: Claim<'_>,
        shard: &mut Shard<'_, S>,
        place: Place,
        rule: &A,
        state: S,
        now: Moment,
    ) {
        let word = self.word(rule, &state, now);
        match word {
            Some(word) if word.mark() >= claim.word().mark() => return claim.advance(word),
            _ => claim.vacate(),
        }
        // A slot's mark only grows: what has shrunk finds another one.
        let place_again = |word| self.table.place(place.fingerprint, word, now, || true);
        match word.and_then(place_again) {
            Some(Placed::Free) => {}
            Some(Placed::Forgotten) => self.forgotten(1),
            None => self.insert_in_map(shard, place, rule, state),
        }
    }

    fn insert_in_map<A: Algorithm<State = S>>(
        &self,
        shard: &mut Shard<'_, S>,
        place: Place,
        rule: &A,
        state: S,
    ) {
        let mut slot = Slot::of(state);
        self.map.date(&mut slot, rule);
        shard.insert(place, slot);
    }

    /// What a newcomer inherits at the cap: the largest debt that was ever pushed out
    /// of its sets, its own place's included. `None` where nobody can be pushed out.
    pub(super) fn inherited(&self, place: Place) -> Option<Mark> {
        let smallest = self.table.smallest_debt(place.fingerprint)?;
        self.table.owed(place.fingerprint).max(Some(smallest))
    }

    /// What a newcomer owes if it comes now.
    pub(super) fn newcomers_debt(&self, place: Place) -> Option<Mark> {
        let inherits = self.at_capacity == AtCapacity::InheritDebts && self.room.is_full();
        let inherited = inherits.then(|| self.inherited(place)).flatten();
        inherited.or_else(|| self.table.owed(place.fingerprint))
    }

    /// Gives a newcomer that inherited the place of the smallest debt; it is not counted as inserted
    /// yet. `false` where the store inherits nothing, or nobody can be pushed out.
    pub(super) fn push_out<A: Algorithm<State = S>>(
        &self,
        place: Place,
        rule: &A,
        state: &S,
        now: Moment,
    ) -> bool {
        let word = match self.at_capacity {
            AtCapacity::InheritDebts => self.word(rule, state, now),
            _ => None,
        };
        let pushed = word.is_some_and(|word| self.table.push_out(place.fingerprint, word));
        Counters::add(&self.counters.pushed_out, u64::from(pushed));
        pushed
    }

    /// Newcomers have come to stay.
    pub(super) fn inserted(&self, keys: usize) {
        Counters::add(&self.counters.inserted, keys as u64);
    }

    /// Keys of which nothing is left to know have made room.
    pub(super) fn forgotten(&self, keys: usize) {
        self.room.give(keys);
        Counters::add(&self.counters.forgotten, keys as u64);
    }

    /// Looks for room elsewhere than where a newcomer belongs; no shard may be locked.
    pub(super) fn make_room(&self, now: Moment) {
        self.forgotten(self.map.make_room(now.at()) + self.table.sweep(now));
    }

    /// The answer to a newcomer that finds the store full.
    pub(super) fn full(&self, now: Moment) -> Decision {
        let admitted = self.at_capacity == AtCapacity::AdmitNewcomers;
        let counter = if admitted {
            &self.counters.let_through
        } else {
            &self.counters.turned_away
        };
        Counters::add(counter, 1);
        Decision::undecided(admitted, now.at(), None)
    }
}
