//! Where states go: into the table if they are packed states, into the map otherwise, and what
//! happens when there is no occupancy.

use super::{
    AtCapacity, Inner,
    map::{Location, Shard},
    stats::Counters,
    table::{Claim, Placed, SetScan, Word},
    working_state::WorkingState,
};
use crate::{
    algorithm::{
        Algorithm,
        packed::{PackedState, StoreTime},
    },
    decision::Decision,
    time::{Clock, Timestamp},
};

/// There is no room for a newcomer.
pub(super) struct Full;

/// Where a newcomer is remembered.
pub(super) enum Placement<'a> {
    /// In a slot of the table, which is held.
    Table(Claim<'a>),
    Map,
    /// By this debt alone, once that is [noted](Inner::owe).
    DebtOnly(PackedState),
}

/// Sets of the table, and shards of the map, that a newcomer looks at who finds no occupancy.
const SEARCHES: usize = 4;

impl<S: Clone, C: Clock> Inner<S, C> {
    /// The time of the store, which never falls.
    #[inline]
    pub(super) fn store_time(&self) -> StoreTime {
        let mut at = self.clock.now();
        if !self.clock.is_monotonic() {
            at = self.clamp_to_latest(at);
        }
        StoreTime::new(at, self.made)
    }

    fn clamp_to_latest(&self, at: Timestamp) -> Timestamp {
        use std::sync::atomic::Ordering::Relaxed;
        // Relaxed: all that counts is that this one number never falls.
        let latest = self.latest.fetch_max(at.as_nanos(), Relaxed);
        Timestamp::from_nanos(latest).max(at)
    }

    /// Looks at what is remembered of a key whose shard is locked, or at what it inherits.
    pub(super) fn look_at<A: Algorithm<State = S>>(
        &self,
        shard: &mut Shard<'_, S>,
        location: Location,
        rule: &A,
    ) -> Decision {
        if let Some(slot) = shard.get_mut(location) {
            return rule.look(slot.state.as_ref(), self.store_time().at());
        }
        let now = self.store_time();
        let look = |state: Option<S>| rule.look(state.as_ref(), now.at());
        if let Some(word) = self.table.look(location.fingerprint) {
            return look(self.unpack(rule, word, now));
        }
        // After the key was seen to be in no slot: what it owes was noted before.
        let owed = self.table.owed(location.fingerprint);
        look(self.inherited_state(rule, owed, now))
    }

    /// What a word of the table is to a rule.
    pub(super) fn unpack<A: Algorithm<State = S>>(
        &self,
        rule: &A,
        word: Word,
        now: StoreTime,
    ) -> Option<S> {
        rule.unpack(word.packed(), self.table.packed_kind(word), now)
    }

    /// Remembers a newcomer, and forgets what can be forgotten of a few of its neighbours.
    pub(super) fn insert<A: Algorithm<State = S>>(
        &self,
        shard: &mut Shard<'_, S>,
        location: Location,
        rule: &A,
        working: WorkingState<S>,
        now: StoreTime,
    ) -> Result<(), Full> {
        self.count_expired(shard.expire_some(now.at()));
        match self.place_new_key(shard, location, rule, working, now)? {
            // A slot is let go at once: nothing else is waited for.
            Placement::Table(_) | Placement::Map => {}
            Placement::DebtOnly(debt) => self.owe(location, debt),
        }
        self.count_inserted(1);
        Ok(())
    }

    /// Finds a newcomer a place; it is not counted as inserted yet, and its slot in the table, if it
    /// has one there, is held.
    pub(super) fn place_new_key<'a, A: Algorithm<State = S>>(
        &'a self,
        shard: &mut Shard<'_, S>,
        location: Location,
        rule: &A,
        working: WorkingState<S>,
        now: StoreTime,
    ) -> Result<Placement<'a>, Full> {
        self.kinds.note(rule.state_kind());
        if self.occupancy.is_full() {
            self.make_room(now);
        }
        let word = self.word(rule, &working, now);
        let scan = |word| self.scan_for(location, word, now);
        let placed = word.and_then(|word| {
            self.table
                .place(&scan(word), word, || self.occupancy.take())
        });
        match placed {
            Some((Placed::Free, claim)) => return Ok(Placement::Table(claim)),
            Some((Placed::Expired, claim)) => {
                Counters::add(&self.counters.forgotten, 1);
                return Ok(Placement::Table(claim));
            }
            None if self.occupancy.take() => {
                shard.insert(location, working.slot);
                return Ok(Placement::Map);
            }
            None => {}
        }
        if !self.inherits() {
            return Err(Full);
        }
        if let Some(claim) = word.and_then(|word| self.evict(&scan(word), word)) {
            return Ok(Placement::Table(claim));
        }
        let debt = rule.meter().zip(working.slot.state.as_ref());
        debt.and_then(|(_, state)| rule.pack(state, now))
            .filter(|debt| debt.get() <= Word::LAST)
            .map(Placement::DebtOnly)
            .ok_or(Full)
    }

    /// Remembers a new state of a key that the table has, there or in the map; or forgets the key, if nothing is left to
    /// remember.
    pub(super) fn replace<A: Algorithm<State = S>>(
        &self,
        claim: Claim<'_>,
        shard: &mut Shard<'_, S>,
        location: Location,
        rule: &A,
        working: WorkingState<S>,
        now: StoreTime,
    ) {
        if working.slot.is_expired(now.at()) {
            claim.vacate();
            return self.count_expired(1);
        }
        let word = self.word(rule, &working, now);
        match word {
            Some(word) if word.packed() >= claim.word().packed() => return claim.advance(word),
            _ => claim.vacate(),
        }
        // A slot's packed state only grows: what has shrunk finds another one.
        let place_again = |word| {
            let scan = self.scan_for(location, word, now);
            self.table.place(&scan, word, || true)
        };
        match word.and_then(place_again) {
            Some((Placed::Free, _)) => {}
            Some((Placed::Expired, _)) => self.count_expired(1),
            None => shard.insert(location, working.slot),
        }
    }

    /// What a key finds in the table whose word is known already.
    fn scan_for(&self, location: Location, word: Word, now: StoreTime) -> SetScan<'_> {
        let below = word.packed().shifted(-1);
        self.table.scan(location.fingerprint, now, below)
    }

    /// Whether newcomers inherit debts where there is no occupancy.
    pub(super) fn inherits(&self) -> bool {
        // A store that remembers nobody remembers no debts.
        self.at_capacity == AtCapacity::InheritDebts && self.occupancy.capacity() > 0
    }

    /// Gives a newcomer that inherited the slot of the smallest debt; it is not counted as inserted
    /// yet, and the slot is held. `None` where there is none.
    pub(super) fn evict<'a>(&self, scan: &SetScan<'a>, word: Word) -> Option<Claim<'a>> {
        let claim = self.table.evict(scan, word)?;
        Counters::add(&self.counters.evicted, 1);
        Some(claim)
    }

    /// Pushes a newcomer out at once that can have no place: all who come to its sets inherit what it owes, and so does
    /// it when it comes again.
    pub(super) fn owe(&self, location: Location, debt: PackedState) {
        self.table.owe(location.fingerprint, debt);
        Counters::add(&self.counters.evicted, 1);
    }

    /// Newcomers have come to stay.
    pub(super) fn count_inserted(&self, keys: usize) {
        Counters::add(&self.counters.inserted, keys as u64);
    }

    /// Keys of which nothing is left to know have made occupancy.
    pub(super) fn count_expired(&self, keys: usize) {
        self.occupancy.give(keys);
        Counters::add(&self.counters.forgotten, keys as u64);
    }

    /// Looks for room elsewhere than where a newcomer belongs. The work is bounded.
    pub(super) fn make_room(&self, now: StoreTime) {
        for _ in 0..SEARCHES {
            self.count_expired(self.table.sweep(now) + self.map.make_room(now.at()));
        }
    }

    /// The same for newcomers that find a place without it: as long as that is of use, and each eighth
    /// time otherwise.
    pub(super) fn make_some_room(&self, now: StoreTime) {
        let failed = self.occupancy.failed_searches();
        if failed.is_multiple_of(8) {
            let found = self.table.sweep(now) + self.map.make_room(now.at());
            self.count_expired(found);
            self.occupancy
                .set_failed_searches(if found > 0 { 0 } else { 1 });
        } else {
            self.occupancy.set_failed_searches(failed + 1);
        }
    }

    /// The answer to a newcomer that finds the store full.
    pub(super) fn answer_full(&self, now: StoreTime) -> Decision {
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
