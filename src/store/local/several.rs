//! Decisions about several asks at once, all or nothing.
//!
//! States in the map may be long logs, so they are read and stepped in place. A state is copied
//! only if several asks name its key: the first may be admitted and the second refused.

use smallvec::SmallVec;

use super::{
    AtCapacity, Local, LocalInner,
    evict::{Full, Placement},
    map::{Location, Shard},
    state::WorkingState,
    table::Claim,
};
use crate::{
    algorithm::{
        Algorithm, Step,
        packed::{InMemory, PackedState, StoreTime},
    },
    decision::Decision,
    store::{Ask, Decisions},
    time::Clock,
};

type Few<T> = SmallVec<[T; 4]>;

/// A key that one or more asks name.
struct AskedKey<'a, S> {
    location: Location,
    /// Its slot in the table, held so that no other call sees a part of the asks spent.
    claim: Option<Claim<'a>>,
    /// Its state, unless it is read and stepped in the map.
    working: Option<WorkingState<S>>,
    /// The index of the first ask that names it.
    asked_by: usize,
    /// The number of asks that name it.
    asks: usize,
    /// The index of the ask whose rule wrote the state last.
    written_by: Option<usize>,
    /// `true` if it was in neither the table nor the map.
    is_new: bool,
    /// The placement of a new key. Its slot is held until all new keys have room, so that no other
    /// call spends from a slot that may be removed again.
    placement: Option<Placement<'a>>,
    /// `true` if there was no room for it and it is admitted without being counted.
    is_let_through: bool,
}

impl<A: Algorithm, C: Clock> Local<A, C> {
    /// Decides all asks, each by the rule for its key.
    pub(super) fn decide_all(&self, asks: &[Ask<'_, A>]) -> Decisions {
        let own: Few<Option<A>> = asks.iter().map(Ask::rule_for_key).collect();
        if own.iter().all(Option::is_none) {
            return self.decide_at_once(asks);
        }
        let asks = asks.iter().zip(&own).map(|(ask, own)| {
            let rule = own.as_ref().unwrap_or(ask.rule());
            Ask::new(ask.policy(), rule, *ask.key(), ask.cost())
        });
        self.decide_at_once(&asks.collect::<Few<_>>())
    }

    /// Decides all asks while it reserves the shards of all their keys and holds their slots in the
    /// table.
    fn decide_at_once(&self, asks: &[Ask<'_, A>]) -> Decisions {
        let inner = &*self.inner;
        let locations: Few<Location> = asks
            .iter()
            .map(|ask| inner.locate(ask.policy(), ask.key(), ask.rule().state_kind()))
            .collect();
        let mut shards = ReservedShards::reserve(inner, &locations);
        let earlier = inner.store_time();
        for location in &locations {
            // Before any state is loaded, because a loaded state must not be removed.
            inner.expire_some(shards.of(*location), earlier);
        }
        let mut keys: Few<AskedKey<'_, A::State>> = Few::new();
        // The key of each ask. Several asks may name one key.
        let mut index: Few<usize> = Few::new();
        for (n, location) in locations.iter().enumerate() {
            let same = |key: &AskedKey<'_, _>| key.location.fingerprint == location.fingerprint;
            let key = keys.iter().position(same).unwrap_or(keys.len());
            if key == keys.len() {
                keys.push(inner.asked_key(&mut shards, *location, n));
            }
            keys[key].asks += 1;
            index.push(key);
        }
        // One time for all asks, read when each key is held or found to be new. At an earlier time,
        // a key that was removed meanwhile could spend a full bucket twice.
        let now = inner.store_time();
        for key in &mut keys {
            inner.recall(key, asks[key.asked_by].rule(), now);
        }

        let looks: Few<Decision> = asks
            .iter()
            .zip(&index)
            .map(|(ask, key)| keys[*key].look(&mut shards, ask, now))
            .collect();
        let admits = |(ask, look): (&Ask<'_, A>, &Decision)| look.would_admit(ask.cost());
        let all = asks.iter().zip(&looks).all(admits);

        let mut decisions = looks.clone();
        for (n, ask) in asks.iter().enumerate() {
            let key = &mut keys[index[n]];
            if all {
                key.copy_if_shared(&mut shards);
            }
            let is_later = if all {
                // Units spent in the map cannot be restored, so those states are stepped when all
                // new keys have room.
                key.working.is_none()
            } else {
                // Another ask is refused, so an ask that would be admitted must not spend. It is
                // checked again if the rule of an earlier ask wrote the state of its key.
                let passes = |look: Decision| look.would_admit(ask.cost());
                passes(looks[n])
                    || key.written_by.is_some() && passes(key.look(&mut shards, ask, now))
            };
            if is_later {
                continue;
            }
            decisions[n] = inner.step_key(&mut shards, key, n, ask, now);
            if all && !decisions[n].is_admitted() {
                // Several asks name this key, and an earlier one has spent too much for this one.
                return only(n, decisions[n], looks);
            }
        }
        if let Err(n) = inner.keep_new_keys(&mut shards, &mut keys, asks, now) {
            return only(n, inner.answer_full(now), looks);
        }
        for (n, ask) in asks.iter().enumerate() {
            let key = &mut keys[index[n]];
            if all && key.working.is_none() && !key.is_new {
                decisions[n] = inner.step_key(&mut shards, key, n, ask, now);
            }
            // Only if all asks are admitted. Otherwise the decision of its rule stands.
            if all && key.is_let_through {
                decisions[n] = inner.answer_full(now);
            }
        }
        inner.keep_known(&mut shards, keys, asks, now);
        decisions.into_iter().collect()
    }
}

/// Returns the decisions when ask `n` alone is the reason that nothing was spent.
fn only(n: usize, decision: Decision, mut looks: Few<Decision>) -> Decisions {
    looks[n] = decision;
    looks.into_iter().collect()
}

impl<S: Clone> AskedKey<'_, S> {
    /// Returns the decision of an ask's rule about the current state, without spending.
    fn look<A: Algorithm<State = S>>(
        &self,
        shards: &mut ReservedShards<'_, S>,
        ask: &Ask<'_, A>,
        now: StoreTime,
    ) -> Decision {
        let look = |state| ask.rule().look(state, now.at());
        match &self.working {
            Some(working) => look(working.slot.state.as_ref()),
            None => match shards.of(self.location).get_mut(self.location) {
                Some(slot) => look(slot.state.as_ref()),
                None => look(None),
            },
        }
    }

    /// Copies the state out of the map if several asks name the key.
    fn copy_if_shared(&mut self, shards: &mut ReservedShards<'_, S>) {
        if self.asks > 1 && self.working.is_none() {
            let slot = shards.of(self.location).get_mut(self.location);
            self.working = slot.map(|slot| WorkingState::of(slot.clone()));
        }
    }
}

impl<S: Clone, C: Clock> LocalInner<S, C> {
    fn asked_key<'a>(
        &'a self,
        shards: &mut ReservedShards<'_, S>,
        location: Location,
        asked_by: usize,
    ) -> AskedKey<'a, S> {
        let is_in_map = shards.of(location).get_mut(location).is_some();
        let claim = match is_in_map {
            true => None,
            false => self.table.claim(location.fingerprint),
        };
        let is_new = claim.is_none() && !is_in_map;
        AskedKey {
            location,
            claim,
            working: None,
            asked_by,
            asks: 0,
            written_by: None,
            is_new,
            placement: None,
            is_let_through: false,
        }
    }

    /// Loads the state of a key from its slot in the table or, if the key is new, from the usage
    /// that it inherits. A state in the map stays there.
    fn recall<A: Algorithm<State = S>>(&self, key: &mut AskedKey<'_, S>, rule: &A, now: StoreTime) {
        if let Some(claim) = &key.claim {
            key.working = Some(self.working_state(rule, claim, now));
        } else if key.is_new {
            let usage = self.inherited_usage_of(key.location, rule, now);
            key.working = Some(WorkingState::new(self.inherited_state(rule, usage, now)));
        }
    }

    fn inherited_usage_of<A: Algorithm<State = S>>(
        &self,
        location: Location,
        rule: &A,
        now: StoreTime,
    ) -> Option<PackedState> {
        match rule
            .packed_rule()
            .filter(|packed_rule| self.table.has_kind(*packed_rule))
        {
            Some(packed_rule) => {
                let scan = self.scan(location, packed_rule, now);
                let full = self.is_full(&scan, now);
                self.inherited_usage(&scan, full)
            }
            None => self.table.inherited_usage(location.fingerprint),
        }
    }

    /// Steps the state of a key, in place if it is in the map.
    fn step_key<A: Algorithm<State = S>>(
        &self,
        shards: &mut ReservedShards<'_, S>,
        key: &mut AskedKey<'_, S>,
        n: usize,
        ask: &Ask<'_, A>,
        now: StoreTime,
    ) -> Decision {
        let (rule, cost) = (ask.rule(), ask.cost());
        let step = match &mut key.working {
            Some(working) => working.step(rule, now.at(), cost),
            None => match shards.of(key.location).get_mut(key.location) {
                Some(mut slot) => slot.step(rule, now.at(), cost),
                // Unreachable in practice: no key is removed from a shard that is locked.
                None => rule.step(&mut None, now.at(), cost),
            },
        };
        if !matches!(step, Step::Kept(_)) {
            key.written_by = Some(n);
        }
        step.decision()
    }

    /// Inserts the new keys whose states were written.
    ///
    /// # Errors
    ///
    /// Returns the index of the ask whose state has no room. Then no new key is inserted.
    fn keep_new_keys<'a, A: Algorithm<State = S>>(
        &'a self,
        shards: &mut ReservedShards<'_, S>,
        keys: &mut [AskedKey<'a, S>],
        asks: &[Ask<'_, A>],
        now: StoreTime,
    ) -> Result<(), usize> {
        for n in 0..keys.len() {
            let key = &mut keys[n];
            let (Some(by), true) = (key.written_by, key.is_new) else {
                continue;
            };
            let Some(working) = key.working.take() else {
                continue;
            };
            let (location, rule) = (key.location, asks[by].rule());
            match self.place_new_key(shards.of(location), location, rule, working, now) {
                Ok(placement) => key.placement = Some(placement),
                Err(Full) if self.at_capacity == AtCapacity::AdmitNewcomers => {
                    key.is_let_through = true;
                }
                Err(Full) => {
                    self.undo_insertions(shards, &mut keys[..n]);
                    return Err(by);
                }
            }
        }
        for key in keys {
            // Dropping the placement releases its slot.
            let Some(placement) = key.placement.take() else {
                continue;
            };
            self.count_inserted(key.location);
            if let Placement::UsageOnly(usage) = placement {
                self.evict_on_arrival(key.location, usage);
            }
        }
        Ok(())
    }

    /// Removes new keys that were already placed.
    fn undo_insertions(&self, shards: &mut ReservedShards<'_, S>, keys: &mut [AskedKey<'_, S>]) {
        for key in keys {
            let removed = match key.placement.take() {
                Some(Placement::Table(claim)) => {
                    claim.vacate();
                    true
                }
                Some(Placement::Map) => shards.of(key.location).remove(key.location),
                Some(Placement::UsageOnly(_)) | None => false,
            };
            self.occupancy.give(usize::from(removed));
        }
    }

    /// Stores the states that were written of keys that are not new.
    fn keep_known<A: Algorithm<State = S>>(
        &self,
        shards: &mut ReservedShards<'_, S>,
        keys: Few<AskedKey<'_, S>>,
        asks: &[Ask<'_, A>],
        now: StoreTime,
    ) {
        for key in keys {
            let (Some(by), Some(working)) = (key.written_by, key.working) else {
                continue;
            };
            let (location, rule) = (key.location, asks[by].rule());
            let shard = shards.of(location);
            if let Some(claim) = key.claim {
                self.replace(claim, shard, location, rule, working, now);
            } else if let Some(mut slot) = shard.get_mut(location) {
                *slot = working.slot;
            }
        }
    }
}

/// The shards of several locations, reserved in ascending order.
struct ReservedShards<'a, S> {
    numbers: Few<usize>,
    locked: Few<Shard<'a, S>>,
}

impl<'a, S> ReservedShards<'a, S> {
    fn reserve<C>(inner: &'a LocalInner<S, C>, locations: &[Location]) -> Self {
        let mut numbers: Few<usize> = locations.iter().map(|location| location.shard).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let reserve = |number: &usize| inner.map.reserve_shard(*number);
        let locked = numbers.iter().map(reserve).collect();
        Self { numbers, locked }
    }

    fn of(&mut self, location: Location) -> &mut Shard<'a, S> {
        let index = self
            .numbers
            .partition_point(|number| *number < location.shard);
        &mut self.locked[index]
    }
}
