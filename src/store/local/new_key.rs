//! Decisions about new keys: the debt that they inherit, and their placement.

use std::{cmp::Reverse, time::Duration};

use super::{
    Inner,
    map::{Location, Shard},
    place::Full,
    slot::MapSlot,
    stats::Counters,
    table::{SetScan, Word},
    working_state::WorkingState,
};
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        packed::{PackedKind, PackedRule, PackedState, StoreTime},
    },
    decision::{Cost, Decision},
    sync::yield_now,
    time::Clock,
};

/// The number of times that a new key tries to evict another one while other threads compete.
const EVICTION_ATTEMPTS: usize = 4;

impl<S: Clone, C: Clock> Inner<S, C> {
    /// Decides about a new key whose shard is locked, and inserts it into a free slot. Returns `None` if the key may be known, may inherit a
    /// debt, or finds no such slot. This is what most new keys need.
    pub(super) fn decide_in_free_slot(
        &self,
        location: Location,
        state_kind: StateKind,
        meter: PackedRule<'_>,
        cost: Cost,
    ) -> Option<Decision> {
        if self.occupancy.is_full() {
            return None;
        }
        let free = self.table.free_slot(location.fingerprint)?;
        // Read after the key was found to be new: another thread may have removed it, at a later time than any before.
        let now = self.store_time();
        let (packed, decision) = meter.step(None, now, cost);
        let Some(packed) = packed else {
            return Some(decision);
        };
        let word = self.table.word(packed, meter.packed_kind())?;
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
        meter: PackedRule<'_>,
        cost: Cost,
    ) -> Decision {
        // Read after the key was found to be new: another thread may have removed it when it had expired. At an earlier time than that, the
        // key could spend a full bucket twice.
        let now = self.store_time();
        if !self.table.has_kind(meter) {
            return self.decide_new_key_unpacked(shard, location, rule, cost);
        }
        self.kinds.note(rule.state_kind());
        if self.occupancy.is_full() {
            // `make_room` skips this shard, since it is locked.
            self.expire_some(shard, now);
        }
        // The state and decision it would have in a slot, if it gets none.
        let mut owes = None;
        let mut scan = self.scan(location, meter, now);
        for _ in 0..EVICTION_ATTEMPTS {
            let full = self.is_full(&scan, now);
            let debt = self.debt(&scan, full);
            let (packed, decision) = meter.step(debt, now, cost);
            if full && !self.inherits() && decision.retry_after().is_some() {
                break;
            }
            let Some(packed) = packed else {
                Counters::add(&self.counters.held_back, u64::from(debt.is_some()));
                return decision;
            };
            let word = self.table.word(packed, meter.packed_kind());
            let placed = word.and_then(|word| self.place_in_table(&scan, word.into()));
            match placed {
                Some(_) => {}
                None if self.occupancy.take() => {
                    match rule.unpack(packed, meter.packed_kind(), now) {
                        Some(state) => {
                            self.expire_some(shard, now);
                            shard.insert(location, MapSlot::of(state, rule));
                        }
                        None => self.occupancy.give(1),
                    }
                }
                None if self.inherits() => {
                    if word.and_then(|word| self.evict(&scan, word)).is_none() {
                        owes = Some((packed, decision));
                        if !scan.may_change() {
                            // No slot of its sets can be evicted, also not by a second attempt.
                            break;
                        }
                        // Another thread was faster: scan again.
                        yield_now();
                        scan = self.scan(location, meter, now);
                        continue;
                    }
                }
                None => break,
            }
            self.count_inserted(location);
            return decision;
        }
        match owes {
            Some((packed, decision)) if packed.get() <= Word::LAST => {
                self.owe(location, packed);
                self.count_inserted(location);
                decision
            }
            _ => self.answer_full(now),
        }
    }

    /// Decides about a new key whose state cannot be packed. It cannot evict, because it could not inherit the evicted debt.
    pub(super) fn decide_new_key_unpacked<A: Algorithm<State = S>>(
        &self,
        shard: &mut Shard<'_, S>,
        location: Location,
        rule: &A,
        cost: Cost,
    ) -> Decision {
        // Read after the key was found to be new, as in `decide_new_key`.
        let now = self.store_time();
        let owed = self.table.owed(location.fingerprint);
        let mut working = WorkingState::new(self.inherited_state(rule, owed, now));
        let inherits = working.slot.state.is_some();
        let step = working.step(rule, now.at(), cost);
        if let Step::Kept(_) = step {
            Counters::add(&self.counters.held_back, u64::from(inherits));
        } else if let Err(Full) = self.insert(shard, location, rule, working, now) {
            return self.answer_full(now);
        }
        step.decision()
    }

    /// Scans the sets of a new key.
    pub(super) fn scan(
        &self,
        location: Location,
        meter: PackedRule<'_>,
        now: StoreTime,
    ) -> SetScan<'_> {
        self.table.scan(location.fingerprint, now, meter.floor(now))
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

    /// Returns the debt that a new key inherits: the largest debt that was ever evicted from its sets or, if the store is full,
    /// the debt in the slot that it would take, whichever is larger.
    pub(super) fn debt(&self, scan: &SetScan<'_>, full: bool) -> Option<PackedState> {
        let taken = scan.smallest_debt();
        let taken = taken.filter(|_| full && self.inherits());
        scan.owed().max(taken)
    }

    /// Returns the state of a new key that inherits `debt`. Returns `None` if there is no debt, or if a new key starts with no more than
    /// the debt leaves.
    pub(super) fn inherited_state<A: Algorithm<State = S>>(
        &self,
        rule: &A,
        debt: Option<PackedState>,
        now: StoreTime,
    ) -> Option<S> {
        let debt = debt?;
        let state = rule.unpack(debt, PackedKind::DEBT, now);
        if rule.packed_rule().is_some() {
            // Rules that pack their states start without a debt, so no debt leaves more.
            return state;
        }
        // Other rules may start with less. Or they start above their burst, and any debt, however old, would leave less than
        // that. So a debt counts only if it cannot have expired yet.
        let owes = self.table.can_matter(debt, now)
            && allowance(rule, state.clone(), now) < allowance(rule, None, now);
        state.filter(|_| owes)
    }
}

/// Returns a value that orders states by what they allow: first the units that can be spent at once, then how soon the next unit
/// follows. The second part distinguishes states above a full bucket and below an empty one.
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
