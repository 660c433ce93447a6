//! The states of several asks at once, which the [engine](crate::store::engine) spends together or
//! not at all.
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
    decision::{Cost, Decision},
    store::{
        Ask, Decisions,
        engine::{NoRoom, States},
    },
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
        let asks = asks.iter().zip(&own);
        let asks = asks.map(|(ask, own)| ask.under(own.as_ref().unwrap_or(ask.rule())));
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
        let shards = ReservedShards::reserve(inner, &locations);
        let mut states = CallStates {
            inner,
            asks,
            shards,
            keys: Few::new(),
            index: Few::new(),
            now: inner.store_time(),
        };
        states.find(&locations);
        let numbers: Few<usize> = (0..asks.len()).collect();
        let mut decisions = states.decide(&numbers, true, &mut Few::new());
        if !decisions.iter().all(Decision::is_admitted) {
            // A refusal writes the state of a key that its rule sees for the first time.
            if let Some(NoRoom { index, decision }) = states.make_room() {
                decisions[index] = decision;
            }
        } else if states.keys.iter().any(|key| key.is_let_through) {
            for (decision, key) in decisions.iter_mut().zip(&states.index) {
                if states.keys[*key].is_let_through {
                    *decision = inner.answer_full(states.now);
                }
            }
        }
        states.keep_known();
        decisions.into()
    }
}

/// The states of the keys of a call. An ask is its index.
struct CallStates<'a, 'c, A: Algorithm, C> {
    inner: &'a LocalInner<A::State, C>,
    asks: &'c [Ask<'c, A>],
    shards: ReservedShards<'a, A::State>,
    keys: Few<AskedKey<'a, A::State>>,
    /// The key of each ask. Several asks may name one key.
    index: Few<usize>,
    now: StoreTime,
}

impl<A: Algorithm, C: Clock> States<usize> for CallStates<'_, '_, A, C> {
    /// Saved where it came from: in the table, in the map, or in the usage that a new key inherits.
    type Saved = ();

    #[inline(always)]
    fn cost(&self, n: &usize) -> Cost {
        self.asks[*n].cost()
    }

    #[inline(always)]
    fn look(&mut self, n: &usize) -> Decision {
        let (key, now) = (&self.keys[self.index[*n]], self.now.at());
        let look = |state| self.asks[*n].rule().look(state, now);
        match &key.working {
            Some(working) => look(working.slot.state.as_ref()),
            None => match self.shards.of(key.location).get_mut(key.location) {
                Some(slot) => look(slot.state.as_ref()),
                None => look(None),
            },
        }
    }

    /// Steps on a state, in place if it is in the map.
    #[inline(always)]
    fn step(&mut self, n: &usize) -> Step {
        let (key, now) = (&mut self.keys[self.index[*n]], self.now.at());
        let (rule, cost) = (self.asks[*n].rule(), self.asks[*n].cost());
        let step = match &mut key.working {
            Some(working) => working.step(rule, now, cost),
            None => match self.shards.of(key.location).get_mut(key.location) {
                Some(mut slot) => slot.step(rule, now, cost),
                // Unreachable in practice: no key is removed from a shard that is locked.
                None => rule.step(&mut None, now, cost),
            },
        };
        if !matches!(step, Step::Kept(_)) {
            key.written_by = Some(*n);
        }
        step
    }

    #[inline(always)]
    fn is_first(&self, n: &usize) -> bool {
        self.keys[self.index[*n]].asked_by == *n
    }

    /// Copies a state out of the map if several asks name the key.
    #[inline(always)]
    fn save(&mut self, n: &usize) -> Option<()> {
        let key = &mut self.keys[self.index[*n]];
        if key.asks > 1 && key.working.is_none() {
            let slot = self.shards.of(key.location).get_mut(key.location);
            key.working = slot.map(|slot| WorkingState::of(slot.clone()));
        }
        key.working.is_some().then_some(())
    }

    fn undo(&mut self, n: &usize, (): ()) {
        let key = &mut self.keys[self.index[*n]];
        (key.working, key.written_by) = (None, None);
        let rule = self.asks[key.asked_by].rule();
        self.inner.recall(key, rule, self.now);
    }

    /// Inserts the new keys whose states were written, or none of them.
    #[inline]
    fn make_room(&mut self) -> Option<NoRoom> {
        let (inner, now) = (self.inner, self.now);
        for n in 0..self.keys.len() {
            let key = &mut self.keys[n];
            let (Some(by), true) = (key.written_by, key.is_new) else {
                continue;
            };
            let Some(working) = key.working.take() else {
                continue;
            };
            let (location, rule) = (key.location, self.asks[by].rule());
            let shard = self.shards.of(location);
            match inner.place_new_key(shard, location, rule, working, now) {
                Ok(placement) => key.placement = Some(placement),
                Err(Full) if inner.at_capacity == AtCapacity::AdmitNewcomers => {
                    key.is_let_through = true;
                }
                Err(Full) => {
                    inner.undo_insertions(&mut self.shards, &mut self.keys[..n]);
                    return Some(NoRoom {
                        index: by,
                        decision: inner.answer_full(now),
                    });
                }
            }
        }
        for key in &mut self.keys {
            // Dropping the placement releases its slot.
            let Some(placement) = key.placement.take() else {
                continue;
            };
            inner.count_inserted(key.location);
            if let Placement::UsageOnly(usage) = placement {
                inner.evict_on_arrival(key.location, usage);
            }
        }
        None
    }
}

impl<A: Algorithm, C: Clock> CallStates<'_, '_, A, C> {
    /// Finds the states. Of several asks, one may name the same key as another.
    fn find(&mut self, locations: &[Location]) {
        let inner = self.inner;
        for location in locations {
            // Before any state is loaded, because a loaded state must not be removed.
            inner.expire_some(self.shards.of(*location), self.now);
        }
        for (n, location) in locations.iter().enumerate() {
            let same = |key: &AskedKey<'_, _>| key.location.fingerprint == location.fingerprint;
            let key = self.keys.iter().position(same).unwrap_or(self.keys.len());
            if key == self.keys.len() {
                self.keys
                    .push(inner.asked_key(&mut self.shards, *location, n));
            }
            self.keys[key].asks += 1;
            self.index.push(key);
        }
        // One time for all asks, read when each key is held or found to be new. At an earlier time,
        // a key that was removed meanwhile could spend a full bucket twice.
        self.now = inner.store_time();
        for key in &mut self.keys {
            inner.recall(key, self.asks[key.asked_by].rule(), self.now);
        }
    }

    /// Stores the states that were written of keys that are not new.
    fn keep_known(&mut self) {
        for key in self.keys.drain(..) {
            let (Some(by), Some(working)) = (key.written_by, key.working) else {
                continue;
            };
            let (location, rule) = (key.location, self.asks[by].rule());
            let shard = self.shards.of(location);
            if let Some(claim) = key.claim {
                self.inner
                    .replace(claim, shard, location, rule, working, self.now);
            } else if let Some(mut slot) = shard.get_mut(location) {
                *slot = working.slot;
            }
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
    #[inline(always)]
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
