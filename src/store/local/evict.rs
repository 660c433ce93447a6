//! New keys: the usage that they inherit, their placement, and the keys that are evicted for them.
//!
//! States are placed in the table if they are packed, otherwise in the map. At the capacity,
//! [`AtCapacity`] decides.
//!
//! At the capacity, new keys inherit usage. The smallest debt of sixteen is evicted and recorded
//! for its key, and the new key starts with it, or with what its rule starts with if that is less.
//! A key that returns finds at least its own debt, so no key is admitted above its limit during any
//! flood. New and calm clients pay, by the shares that `BENCHMARKS.md` lists. An evicted debt is a
//! number of unknown kind that each new key reads as its own, so limits of very different periods
//! or algorithms should have a store each.
//!
//! A full store is undecided, not a refusal: a new key that finds no room did not exceed its quota.
//! It gets 503 or passes, by choice.

use std::{cmp::Reverse, time::Duration};

use super::{
    AtCapacity, LocalInner,
    map::{Location, Shard},
    state::{MapSlot, WorkingState},
    table::{Claim, SetScan, Word, Words},
};
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        packed::{InMemory, PackedKind, PackedRule, PackedState, StoreTime},
    },
    decision::{Cost, Decision},
    sync::yield_now,
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
    /// In no slot. Only its usage is recorded, by [`LocalInner::evict_on_arrival`].
    UsageOnly(PackedState),
}

/// The time in nanoseconds for which an expired state stays in the map while there is room. Not for
/// ever, as in the table, because these states are larger, and some have memory of their own.
const STAYS_IN_MAP: u64 = 60_000_000_000;

/// The number of sets of the table, and of shards of the map, searched for expired keys when the
/// store is full.
const SEARCHES: usize = 4;

/// The number of times that a new key tries to evict another one while other threads compete.
const EVICTION_ATTEMPTS: usize = 4;

impl<S: Clone, C: Clock> LocalInner<S, C> {
    /// Decides about a new key whose shard is locked, and inserts it into a free slot. Returns
    /// `None` if the key may be known, may inherit usage, or finds no such slot. This is what most
    /// new keys need.
    pub(super) fn decide_in_free_slot(
        &self,
        location: Location,
        state_kind: StateKind,
        packed_rule: PackedRule<'_>,
        cost: Cost,
    ) -> Option<Decision> {
        if self.occupancy.is_full() {
            return None;
        }
        let free = self.table.free_slot(location.fingerprint)?;
        // Read after the key was found to be new: another thread may have removed it, at a later
        // time than any before.
        let now = self.store_time();
        let (packed, decision) = packed_rule.step(None, now, cost);
        let Some(packed) = packed else {
            return Some(decision);
        };
        let word = self.table.word(packed, packed_rule.packed_kind())?;
        self.kinds.note(state_kind);
        self.placed(|| self.table.take(&free, word))?;
        self.count_inserted(location);
        Some(decision)
    }

    /// Decides about a new key whose shard is locked.
    pub(super) fn decide_new_key<A: Algorithm<State = S>>(
        &self,
        shard: &mut Shard<'_, S>,
        location: Location,
        rule: &A,
        packed_rule: PackedRule<'_>,
        cost: Cost,
    ) -> Decision {
        // Read after the key was found to be new: another thread may have removed it when it had
        // expired. At an earlier time than that, the key could spend a full bucket twice.
        let now = self.store_time();
        if !self.table.has_kind(packed_rule) {
            return self.decide_new_key_unpacked(shard, location, rule, cost);
        }
        self.kinds.note(rule.state_kind());
        if self.occupancy.is_full() {
            // `make_room` skips this shard, since it is locked.
            self.expire_some(shard, now);
        }
        // The packed state and the decision of a key that gets no slot.
        let mut unplaced = None;
        let mut scan = self.scan(location, packed_rule, now);
        for _ in 0..EVICTION_ATTEMPTS {
            let full = self.is_full(&scan, now);
            let usage = self.inherited_usage(&scan, full);
            let (packed, decision) = packed_rule.step(usage, now, cost);
            if full && !self.inherits() && decision.retry_after().is_some() {
                break;
            }
            let Some(packed) = packed else {
                self.counters.held_back.add(u64::from(usage.is_some()));
                return decision;
            };
            let word = self.table.word(packed, packed_rule.packed_kind());
            let placed = word.and_then(|word| self.place_in_table(&scan, word.into()));
            match placed {
                Some(_) => {}
                None if self.occupancy.take() => {
                    match rule.unpack(packed, packed_rule.packed_kind(), now) {
                        Some(state) => {
                            self.expire_some(shard, now);
                            shard.insert(location, MapSlot::of(state, rule));
                        }
                        None => self.occupancy.give(1),
                    }
                }
                None if self.inherits() => {
                    if word.and_then(|word| self.evict(&scan, word)).is_none() {
                        unplaced = Some((packed, decision));
                        if !scan.may_change() {
                            // No slot of its sets can be evicted, also not by a second attempt.
                            break;
                        }
                        // Another thread was faster: scan again.
                        yield_now();
                        scan = self.scan(location, packed_rule, now);
                        continue;
                    }
                }
                None => break,
            }
            self.count_inserted(location);
            return decision;
        }
        match unplaced {
            Some((packed, decision)) if packed.get() <= Word::LAST => {
                self.evict_on_arrival(location, packed);
                self.count_inserted(location);
                decision
            }
            _ => self.answer_full(now),
        }
    }

    /// Decides about a new key whose state cannot be packed. It cannot evict, because it could not
    /// inherit the evicted usage.
    pub(super) fn decide_new_key_unpacked<A: Algorithm<State = S>>(
        &self,
        shard: &mut Shard<'_, S>,
        location: Location,
        rule: &A,
        cost: Cost,
    ) -> Decision {
        // Read after the key was found to be new, as in `decide_new_key`.
        let now = self.store_time();
        let usage = self.table.inherited_usage(location.fingerprint);
        let mut working = WorkingState::new(self.inherited_state(rule, usage, now));
        let inherits = working.slot.state.is_some();
        let step = working.step(rule, now.at(), cost);
        if let Step::Kept(_) = step {
            self.counters.held_back.add(u64::from(inherits));
        } else if let Err(Full) = self.insert(shard, location, rule, working, now) {
            return self.answer_full(now);
        }
        step.decision()
    }

    /// Scans the sets of a new key.
    pub(super) fn scan(
        &self,
        location: Location,
        packed_rule: PackedRule<'_>,
        now: StoreTime,
    ) -> SetScan<'_> {
        self.table
            .scan(location.fingerprint, now, packed_rule.floor(now))
    }

    /// Returns `true` if there is no room, even after removing expired keys.
    pub(super) fn is_full(&self, scan: &SetScan<'_>, now: StoreTime) -> bool {
        if scan.has_expired() || !self.occupancy.is_full() {
            return false;
        }
        if self.table.vacate(scan) {
            self.count_expired(1);
        } else if self.inherits() {
            self.make_some_room(now);
        } else {
            self.make_room(now);
        }
        self.occupancy.is_full()
    }

    /// Returns the usage that a new key inherits: the largest usage that was ever evicted from its
    /// sets or, if the store is full, the usage in the slot that it would take, whichever is
    /// larger.
    pub(super) fn inherited_usage(&self, scan: &SetScan<'_>, full: bool) -> Option<PackedState> {
        let taken = scan.smallest_usage();
        let taken = taken.filter(|_| full && self.inherits());
        scan.inherited_usage().max(taken)
    }

    /// Returns the state of a new key that inherits `usage`. Returns `None` if there is none, or if
    /// a new key starts with no more than the usage leaves.
    pub(super) fn inherited_state<A: Algorithm<State = S>>(
        &self,
        rule: &A,
        usage: Option<PackedState>,
        now: StoreTime,
    ) -> Option<S> {
        let usage = usage?;
        let state = rule.unpack(usage, PackedKind::DEBT, now);
        if rule.packed_rule().is_some() {
            // Rules that pack their states start without usage, so no usage leaves more.
            return state;
        }
        // Other rules may start with less. Or they start above their burst, and any usage, however
        // old, would leave less than that. So usage counts only if it cannot have expired yet.
        let counts = self.table.can_matter(usage, now)
            && allowance(rule, state.clone(), now) < allowance(rule, None, now);
        state.filter(|_| counts)
    }

    /// Returns the time of the store, which never decreases.
    #[inline]
    pub(super) fn store_time(&self) -> StoreTime {
        StoreTime::new(self.clock.now(), self.made)
    }

    /// Returns the decision that a key whose shard is locked would get, by its state or by the
    /// usage that it would inherit.
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
        // Read after the key was found in no slot: an eviction records the usage before it changes
        // the slot.
        let usage = self.table.inherited_usage(location.fingerprint);
        look(self.inherited_state(rule, usage, now))
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
            Placement::UsageOnly(usage) => self.evict_on_arrival(location, usage),
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
        // A state in two words, and calls in flight, cannot inherit, so they cannot evict.
        if !self.inherits() || rule.packed_rule().is_none() {
            return Err(Full);
        }
        if let Some(claim) = scan.and_then(|(words, scan)| self.evict(&scan, words.word)) {
            return Ok(Placement::Table(claim));
        }
        let usage = working.slot.state.as_ref();
        usage
            .and_then(|state| rule.pack(state, now))
            .filter(|usage| usage.get() <= Word::LAST)
            .map(Placement::UsageOnly)
            .ok_or(Full)
    }

    /// Places a new key in the table: in a free slot while there is room, and lets the table grow;
    /// otherwise in that of an expired key.
    fn place_in_table<'a>(&'a self, scan: &SetScan<'a>, words: Words) -> Option<Claim<'a>> {
        let placed = self.placed(|| self.table.place_free(scan, words));
        placed.or_else(|| {
            let (displaced, claim) = self.table.place_expired(scan, words)?;
            self.count_displaced(displaced);
            Some(claim)
        })
    }

    /// Places one more key in the table by `claim` if there is room, and lets the table grow.
    fn placed<'a>(&self, claim: impl FnOnce() -> Option<Claim<'a>>) -> Option<Claim<'a>> {
        if !self.occupancy.take() {
            return None;
        }
        let placed = claim();
        // After the key is placed, because its sets may change.
        self.table.grow_for(self.occupancy.keys());
        if placed.is_none() {
            self.occupancy.give(1);
        }
        placed
    }

    /// Replaces the state of a key in the table. The new state is stored in the table or in the
    /// map. If it has expired, the key is removed.
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
        let words = words.and_then(|words| self.table.after(&claim, words));
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

    /// Returns `true` if new keys inherit usage when the store is full.
    fn inherits(&self) -> bool {
        // A store without slots records no usage either.
        self.at_capacity == AtCapacity::InheritDebts && self.occupancy.capacity() > 0
    }

    /// Evicts the key with the smallest usage and claims its slot for a new key that has inherited.
    /// The caller counts the insertion. Returns `None` if there is no such slot.
    fn evict<'a>(&self, scan: &SetScan<'a>, word: Word) -> Option<Claim<'a>> {
        let claim = self.table.evict(scan, word)?;
        self.counters.evicted.add(1);
        Some(claim)
    }

    /// Evicts a new key at once because it can have no slot. All new keys of its sets inherit its
    /// usage, and so does the key itself when it returns.
    pub(super) fn evict_on_arrival(&self, location: Location, usage: PackedState) {
        self.table.record_usage(location.fingerprint, usage);
        self.counters.evicted.add(1);
    }

    /// Counts an inserted key.
    pub(super) fn count_inserted(&self, location: Location) {
        self.counters.inserted.add(1);
        let returned = self.displaced.count_return(location.fingerprint);
        self.counters.returned.add(returned);
    }

    /// Counts an expired key whose slot another key has taken.
    fn count_displaced(&self, fingerprint: u64) {
        self.counters.forgotten.add(1);
        self.displaced.note(fingerprint);
    }

    /// Counts expired keys that were removed.
    pub(super) fn count_expired(&self, keys: usize) {
        self.occupancy.give(keys);
        self.counters.forgotten.add(keys as u64);
    }

    /// Removes expired states from a shard of the map. While there is room, a state stays for a
    /// while, because most clients return with an expired one.
    pub(super) fn expire_some(&self, shard: &mut Shard<'_, S>, now: StoreTime) {
        let stays = match self.occupancy.is_full() {
            true => 0,
            false => STAYS_IN_MAP,
        };
        let until = Timestamp::from_nanos(now.at().as_nanos().saturating_sub(stays));
        self.count_expired(shard.expire_some(until, &self.displaced));
    }

    /// Removes expired keys from a few sets and shards, whether or not the new key belongs to them.
    /// The work is bounded.
    fn make_room(&self, now: StoreTime) {
        for _ in 0..SEARCHES {
            self.count_expired(
                self.table.sweep(now) + self.map.make_room(now.at(), &self.displaced),
            );
        }
    }

    /// Removes expired keys for a new key that could also evict another one. Searches on every call
    /// while searches succeed, and on every eighth call otherwise.
    fn make_some_room(&self, now: StoreTime) {
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
        counter.add(1);
        Decision::undecided(admitted, now.at(), None)
    }
}

/// Returns a value that orders states by what they allow: first the units that can be spent at
/// once, then how soon the next unit follows. The second part distinguishes states above a full
/// bucket and below an empty one.
fn allowance<A: Algorithm>(
    rule: &A,
    mut state: Option<A::State>,
    now: StoreTime,
) -> impl Ord + use<A> {
    let once = rule.look(state.as_ref(), now.at()).remaining();
    if let Some(all) = once.and_then(Cost::new) {
        rule.step(&mut state, now.at(), all);
    }
    let again = rule.look(state.as_ref(), now.at()).retry_after();
    (once, Reverse(again.unwrap_or(Duration::MAX)))
}
