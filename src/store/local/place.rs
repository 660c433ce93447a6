//! Placement of states: in the table if they are packed, otherwise in the map. At the capacity, [`AtCapacity`] decides.

use super::{
    AtCapacity, Inner,
    map::{Location, Shard},
    stats::Counters,
    table::{Claim, SetScan, Word, Words},
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

/// Error: there is no room for a new key.
pub(super) struct Full;

/// The placement of a new key.
pub(super) enum Placement<'a> {
    /// In a slot of the table, which this thread holds.
    Table(Claim<'a>),
    /// In the map.
    Map,
    /// In no slot. Only its debt is recorded, by [`Inner::owe`].
    DebtOnly(PackedState),
}

/// The time in nanoseconds for which an expired state stays in the map while there is room. Not for ever, as in the table, because these states
/// are larger, and some have memory of their own.
const STAYS_IN_MAP: u64 = 60_000_000_000;

/// The number of sets of the table, and of shards of the map, searched for expired keys when the store is full.
const SEARCHES: usize = 4;

impl<S: Clone, C: Clock> Inner<S, C> {
    /// Returns the time of the store, which never decreases.
    #[inline]
    pub(super) fn store_time(&self) -> StoreTime {
        StoreTime::new(self.clock.now(), self.made)
    }

    /// Returns the decision that a key whose shard is locked would get, by its state or by the debt that it would inherit.
    pub(super) fn look_at<A: Algorithm<State = S>>(
        &self,
        shard: &mut Shard<'_, S>,
        location: Location,
        rule: &A,
    ) -> Decision {
        if let Some(slot) = shard.get_mut(location) {
            return rule.look(slot.state.as_ref(), self.store_time().at());
        }
        let claim = self.table.claim(location.fingerprint);
        // Read while the slot is held, as when it is charged.
        let now = self.store_time();
        let look = |state: Option<S>| rule.look(state.as_ref(), now.at());
        if let Some(claim) = claim {
            return look(self.working_state(rule, &claim, now).slot.state);
        }
        // Read after the key was found in no slot: an eviction records the debt before it changes the slot.
        let owed = self.table.owed(location.fingerprint);
        look(self.inherited_state(rule, owed, now))
    }

    /// Unpacks the state in a word of the table for a rule.
    pub(super) fn unpack<A: Algorithm<State = S>>(
        &self,
        rule: &A,
        word: Word,
        now: StoreTime,
    ) -> Option<S> {
        rule.unpack(word.packed(), self.table.packed_kind(word), now)
    }

    /// Inserts a new key, and removes expired keys among a few others of its shard.
    pub(super) fn insert<A: Algorithm<State = S>>(
        &self,
        shard: &mut Shard<'_, S>,
        location: Location,
        rule: &A,
        working: WorkingState<S>,
        now: StoreTime,
    ) -> Result<(), Full> {
        self.expire_some(shard, now);
        match self.place_new_key(shard, location, rule, working, now)? {
            // Dropping the claim releases the slot at once.
            Placement::Table(_) | Placement::Map => {}
            Placement::DebtOnly(debt) => self.owe(location, debt),
        }
        self.count_inserted(location);
        Ok(())
    }

    /// Places a new key, without counting it as inserted. A slot in the table stays held.
    pub(super) fn place_new_key<'a, A: Algorithm<State = S>>(
        &'a self,
        shard: &mut Shard<'_, S>,
        location: Location,
        rule: &A,
        working: WorkingState<S>,
        now: StoreTime,
    ) -> Result<Placement<'a>, Full> {
        self.kinds.note(rule.state_kind());
        let words = self.words(rule, &working, now);
        let mut scan = words.map(|words| (words, self.scan_for(location, words, now)));
        let has_expired = scan.as_ref().is_some_and(|(_, scan)| scan.has_expired());
        if self.occupancy.is_full() && !has_expired {
            self.make_room(now);
            scan = words.map(|words| (words, self.scan_for(location, words, now)));
        }
        let placed = scan.as_ref();
        if let Some(claim) = placed.and_then(|(words, scan)| self.place_in_table(scan, *words)) {
            return Ok(Placement::Table(claim));
        }
        if self.occupancy.take() {
            shard.insert(location, working.slot);
            return Ok(Placement::Map);
        }
        if !self.inherits() {
            return Err(Full);
        }
        // A state in two words cannot inherit, so it cannot evict.
        let scan = scan.filter(|(words, _)| words.state.is_none());
        if let Some(claim) = scan.and_then(|(words, scan)| self.evict(&scan, words.word)) {
            return Ok(Placement::Table(claim));
        }
        let debt = rule.packed_rule().zip(working.slot.state.as_ref());
        debt.and_then(|(_, state)| rule.pack(state, now))
            .filter(|debt| debt.get() <= Word::LAST)
            .map(Placement::DebtOnly)
            .ok_or(Full)
    }

    /// Places a new key in the table: in a free slot while there is room, and lets the table grow; otherwise in that of an expired key.
    pub(super) fn place_in_table<'a>(
        &'a self,
        scan: &SetScan<'a>,
        words: Words,
    ) -> Option<Claim<'a>> {
        let placed = self.placed(|| self.table.place_free(scan, words));
        placed.or_else(|| {
            let (displaced, claim) = self.table.place_expired(scan, words)?;
            self.count_displaced(displaced);
            Some(claim)
        })
    }

    /// Places one more key in the table by `place` if there is room, and lets the table grow.
    pub(super) fn placed<'a>(
        &self,
        place: impl FnOnce() -> Option<Claim<'a>>,
    ) -> Option<Claim<'a>> {
        if !self.occupancy.take() {
            return None;
        }
        let placed = place();
        // After the key is placed, because its sets may change.
        self.table.grow_for(self.occupancy.keys());
        if placed.is_none() {
            self.occupancy.give(1);
        }
        placed
    }

    /// Replaces the state of a key in the table. The new state is stored in the table or in the map. If it has expired, the key is
    /// removed.
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
        let words = self.words(rule, &working, now);
        match words {
            Some(words) if words.word.packed() >= claim.word().packed() => {
                return self.table.advance(claim, words);
            }
            _ => claim.vacate(),
        }
        // The packed state of a slot only grows, so a state that has shrunk needs another slot.
        let Some(words) = words else {
            return shard.insert(location, working.slot);
        };
        let scan = self.scan_for(location, words, now);
        if self.table.place_free(&scan, words).is_some() {
            return;
        }
        match self.table.place_expired(&scan, words) {
            Some((displaced, _)) => {
                self.count_displaced(displaced);
                self.occupancy.give(1);
            }
            None => shard.insert(location, working.slot),
        }
    }

    /// Scans the sets of a key for its new words.
    fn scan_for(&self, location: Location, words: Words, now: StoreTime) -> SetScan<'_> {
        let below = words.word.packed().shifted(-1);
        self.table.scan(location.fingerprint, now, below)
    }

    /// Returns `true` if new keys inherit debts when the store is full.
    pub(super) fn inherits(&self) -> bool {
        // A store without slots keeps no debts either.
        self.at_capacity == AtCapacity::InheritDebts && self.occupancy.capacity() > 0
    }

    /// Evicts the key with the smallest debt and claims its slot for a new key that has inherited. The caller counts the insertion.
    /// Returns `None` if there is no such slot.
    pub(super) fn evict<'a>(&self, scan: &SetScan<'a>, word: Word) -> Option<Claim<'a>> {
        let claim = self.table.evict(scan, word)?;
        Counters::add(&self.counters.evicted, 1);
        Some(claim)
    }

    /// Evicts a new key at once because it can have no slot. All new keys of its sets inherit its debt, and so does the key itself
    /// when it returns.
    pub(super) fn owe(&self, location: Location, debt: PackedState) {
        self.table.owe(location.fingerprint, debt);
        Counters::add(&self.counters.evicted, 1);
    }

    /// Counts an inserted key.
    pub(super) fn count_inserted(&self, location: Location) {
        Counters::add(&self.counters.inserted, 1);
        let returned = self.displaced.count_return(location.fingerprint);
        Counters::add(&self.counters.returned, returned);
    }

    /// Counts an expired key whose slot another key has taken.
    pub(super) fn count_displaced(&self, fingerprint: u64) {
        Counters::add(&self.counters.forgotten, 1);
        self.displaced.note(fingerprint);
    }

    /// Counts expired keys that were removed.
    pub(super) fn count_expired(&self, keys: usize) {
        self.occupancy.give(keys);
        Counters::add(&self.counters.forgotten, keys as u64);
    }

    /// Removes expired states from a shard of the map. While there is room, a state stays for a while, because most clients return with an
    /// expired one.
    pub(super) fn expire_some(&self, shard: &mut Shard<'_, S>, now: StoreTime) {
        let stays = match self.occupancy.is_full() {
            true => 0,
            false => STAYS_IN_MAP,
        };
        let until = Timestamp::from_nanos(now.at().as_nanos().saturating_sub(stays));
        self.count_expired(shard.expire_some(until, &self.displaced));
    }

    /// Removes expired keys from a few sets and shards, wherever the new key belongs. The work is bounded.
    pub(super) fn make_room(&self, now: StoreTime) {
        for _ in 0..SEARCHES {
            self.count_expired(
                self.table.sweep(now) + self.map.make_room(now.at(), &self.displaced),
            );
        }
    }

    /// Removes expired keys for a new key that could also evict another one. Searches on every call while searches succeed, and on
    /// every eighth call otherwise.
    pub(super) fn make_some_room(&self, now: StoreTime) {
        let failed = self.occupancy.failed_searches();
        if failed.is_multiple_of(8) {
            let found = self.table.sweep(now) + self.map.make_room(now.at(), &self.displaced);
            self.count_expired(found);
            self.occupancy
                .set_failed_searches(if found > 0 { 0 } else { 1 });
        } else {
            self.occupancy.set_failed_searches(failed + 1);
        }
    }

    /// Returns the decision about a new key when the store is full, and counts it.
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
