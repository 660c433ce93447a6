//! Several asks at once, all or nothing.
//!
//! States in the map, which may be long logs, are looked at and stepped where they lie. A copy is made only of one
//! that several of the asks are about: the first of them may pass and the second be refused.

use smallvec::SmallVec;

use super::{
    AtCapacity, Inner, Local,
    held::Held,
    map::{Place, Shard},
    place::{Full, Home},
    table::Claim,
};
use crate::{
    algorithm::{
        Algorithm, Step,
        packed::{PackedState, StoreTime},
    },
    decision::Decision,
    store::{Ask, Decisions},
    time::Clock,
};

type Few<T> = SmallVec<[T; 4]>;

/// A key that is asked for.
struct Part<'a, S> {
    place: Place,
    /// Its slot in the table, held so that nobody sees it half spent.
    claim: Option<Claim<'a>>,
    /// Its state, unless that is looked at and stepped in the map.
    held: Option<Held<S>>,
    /// The ask that named it first.
    asked_by: usize,
    /// How many asks name it.
    asks: usize,
    /// The ask whose rule wrote last.
    written_by: Option<usize>,
    /// Whether it was nowhere.
    is_new: bool,
    /// Where it is then; a slot is held until all have occupancy, so that nobody spends of what may be taken back.
    home: Option<Home<'a>>,
    /// Whether it found no occupancy, and passes uncounted.
    is_let_through: bool,
}

impl<A: Algorithm, C: Clock> Local<A, C> {
    /// Decides all asks, each by its rule as its key meets it.
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

    /// Decides all asks while the shards of all their keys are reserved, and their slots in the table held.
    fn decide_at_once(&self, asks: &[Ask<'_, A>]) -> Decisions {
        let inner = &*self.inner;
        let places: Few<Place> = asks
            .iter()
            .map(|ask| inner.place(ask.policy(), ask.key(), ask.rule().state_kind()))
            .collect();
        let mut shards = Shards::reserve(inner, &places);
        let earlier = inner.store_time();
        for place in &places {
            // Before anything is recalled: later, what was recalled could be forgotten.
            inner.forgotten(shards.of(*place).forget_some(earlier.at()));
        }
        let mut parts: Few<Part<'_, A::State>> = Few::new();
        // Asks may be about one key.
        let mut index: Few<usize> = Few::new();
        for (n, place) in places.iter().enumerate() {
            let same = |part: &Part<'_, _>| part.place.fingerprint == place.fingerprint;
            let part = parts.iter().position(same).unwrap_or(parts.len());
            if part == parts.len() {
                parts.push(inner.part(&mut shards, *place, n));
            }
            parts[part].asks += 1;
            index.push(part);
        }
        // One instant for all asks. Read when all are held or known to be new: by an earlier one,
        // who was forgotten meanwhile would be full twice.
        let now = inner.store_time();
        for part in &mut parts {
            inner.recall(part, asks[part.asked_by].rule(), now);
        }

        let looks: Few<Decision> = asks
            .iter()
            .zip(&index)
            .map(|(ask, part)| parts[*part].look(&mut shards, ask, now))
            .collect();
        let admits = |(ask, look): (&Ask<'_, A>, &Decision)| look.would_admit(ask.cost());
        let all = asks.iter().zip(&looks).all(admits);

        let mut decisions = looks.clone();
        for (n, ask) in asks.iter().enumerate() {
            let part = &mut parts[index[n]];
            if all {
                part.copy_if_shared(&mut shards);
            }
            let is_later = if all {
                // What is spent in the map cannot be taken back: when all have occupancy.
                part.held.is_none()
            } else {
                // Who passes spends nothing, nor may it by what the first sight of another one's rule has written.
                let passes = |look: Decision| look.would_admit(ask.cost());
                passes(looks[n])
                    || part.written_by.is_some() && passes(part.look(&mut shards, ask, now))
            };
            if is_later {
                continue;
            }
            decisions[n] = inner.step_part(&mut shards, part, n, ask, now);
            if all && !decisions[n].is_admitted() {
                // One key was asked for twice.
                return only(n, decisions[n], looks);
            }
        }
        if let Err(n) = inner.keep_newcomers(&mut shards, &mut parts, asks, now) {
            return only(n, inner.full(now), looks);
        }
        for (n, ask) in asks.iter().enumerate() {
            let part = &mut parts[index[n]];
            if all && part.held.is_none() && !part.is_new {
                decisions[n] = inner.step_part(&mut shards, part, n, ask, now);
            }
            // If another one refuses, so does the newcomer whose first sight could not be kept.
            if all && part.is_let_through {
                decisions[n] = inner.full(now);
            }
        }
        inner.keep_known(&mut shards, parts, asks, now);
        decisions.into_iter().collect()
    }
}

/// Nothing was spent, on account of ask `n`.
fn only(n: usize, decision: Decision, mut looks: Few<Decision>) -> Decisions {
    looks[n] = decision;
    looks.into_iter().collect()
}

impl<S: Clone> Part<'_, S> {
    /// The decision of an ask's rule on the state as it is.
    fn look<A: Algorithm<State = S>>(
        &self,
        shards: &mut Shards<'_, S>,
        ask: &Ask<'_, A>,
        now: StoreTime,
    ) -> Decision {
        let look = |state| ask.rule().look(state, now.at());
        match &self.held {
            Some(held) => look(held.slot.state.as_ref()),
            None => match shards.of(self.place).get_mut(self.place) {
                Some(slot) => look(slot.state.as_ref()),
                None => look(None),
            },
        }
    }

    /// Copies the state out of the map if several asks are about it.
    fn copy_if_shared(&mut self, shards: &mut Shards<'_, S>) {
        if self.asks > 1 && self.held.is_none() {
            let slot = shards.of(self.place).get_mut(self.place);
            self.held = slot.map(|slot| Held::of(slot.clone()));
        }
    }
}

impl<S: Clone, C: Clock> Inner<S, C> {
    fn part<'a>(
        &'a self,
        shards: &mut Shards<'_, S>,
        place: Place,
        asked_by: usize,
    ) -> Part<'a, S> {
        let is_in_map = shards.of(place).get_mut(place).is_some();
        let claim = match is_in_map {
            true => None,
            false => self.table.claim(place.fingerprint),
        };
        let is_new = claim.is_none() && !is_in_map;
        Part {
            place,
            claim,
            held: None,
            asked_by,
            asks: 0,
            written_by: None,
            is_new,
            home: None,
            is_let_through: false,
        }
    }

    /// What is known of a key, or what it owes as a newcomer, unless it lies in the map.
    fn recall<A: Algorithm<State = S>>(&self, part: &mut Part<'_, S>, rule: &A, now: StoreTime) {
        if let Some(claim) = &part.claim {
            part.held = Some(self.held(rule, claim.word(), now));
        } else if part.is_new {
            let owed = self.debt_of(part.place, rule, now);
            part.held = Some(Held::new(self.debtor(rule, owed, now)));
        }
    }

    fn debt_of<A: Algorithm<State = S>>(
        &self,
        place: Place,
        rule: &A,
        now: StoreTime,
    ) -> Option<PackedState> {
        match rule.meter().filter(|meter| self.table.has_kind(*meter)) {
            Some(meter) => {
                let scan = self.scan(place, meter, now);
                let full = self.is_full(&scan, now);
                self.debt(&scan, full)
            }
            None => self.table.owed(place.fingerprint),
        }
    }

    /// Steps on a part's state, wherever it lies.
    fn step_part<A: Algorithm<State = S>>(
        &self,
        shards: &mut Shards<'_, S>,
        part: &mut Part<'_, S>,
        n: usize,
        ask: &Ask<'_, A>,
        now: StoreTime,
    ) -> Decision {
        let (rule, cost) = (ask.rule(), ask.cost());
        let step = match &mut part.held {
            Some(held) => held.step(rule, now.at(), cost),
            None => match shards.of(part.place).get_mut(part.place) {
                Some(mut slot) => slot.step(rule, now.at(), cost),
                // No key leaves a shard that is locked.
                None => rule.step(&mut None, now.at(), cost),
            },
        };
        if !matches!(step, Step::Kept(_)) {
            part.written_by = Some(n);
        }
        step.decision()
    }

    /// Remembers the newcomers among what was written.
    ///
    /// # Errors
    ///
    /// The ask whose rule leaves a state for which there is no occupancy; then no newcomer is remembered.
    fn keep_newcomers<'a, A: Algorithm<State = S>>(
        &'a self,
        shards: &mut Shards<'_, S>,
        parts: &mut [Part<'a, S>],
        asks: &[Ask<'_, A>],
        now: StoreTime,
    ) -> Result<(), usize> {
        for n in 0..parts.len() {
            let part = &mut parts[n];
            let (Some(by), true) = (part.written_by, part.is_new) else {
                continue;
            };
            let Some(held) = part.held.take() else {
                continue;
            };
            let (place, rule) = (part.place, asks[by].rule());
            match self.accommodate(shards.of(place), place, rule, held, now) {
                Ok(home) => part.home = Some(home),
                Err(Full) if self.at_capacity == AtCapacity::AdmitNewcomers => {
                    part.is_let_through = true;
                }
                Err(Full) => {
                    self.take_back(shards, &mut parts[..n]);
                    return Err(by);
                }
            }
        }
        let mut inserted = 0;
        for part in parts {
            // A slot is let go.
            let Some(home) = part.home.take() else {
                continue;
            };
            inserted += 1;
            if let Home::Nowhere(debt) = home {
                self.owe(part.place, debt);
            }
        }
        self.inserted(inserted);
        Ok(())
    }

    /// Forgets newcomers that were given a place.
    fn take_back(&self, shards: &mut Shards<'_, S>, parts: &mut [Part<'_, S>]) {
        for part in parts {
            let removed = match part.home.take() {
                Some(Home::Table(claim)) => {
                    claim.vacate();
                    true
                }
                Some(Home::Map) => shards.of(part.place).remove(part.place),
                Some(Home::Nowhere(_)) | None => false,
            };
            self.occupancy.give(usize::from(removed));
        }
    }

    /// Remembers what was written of known keys.
    fn keep_known<A: Algorithm<State = S>>(
        &self,
        shards: &mut Shards<'_, S>,
        parts: Few<Part<'_, S>>,
        asks: &[Ask<'_, A>],
        now: StoreTime,
    ) {
        for part in parts {
            let (Some(by), Some(held)) = (part.written_by, part.held) else {
                continue;
            };
            let (place, rule) = (part.place, asks[by].rule());
            let shard = shards.of(place);
            if let Some(claim) = part.claim {
                self.replace(claim, shard, place, rule, held, now);
            } else if let Some(mut slot) = shard.get_mut(place) {
                *slot = held.slot;
            }
        }
    }
}

/// The shards of several places, reserved in ascending order.
struct Shards<'a, S> {
    numbers: Few<usize>,
    locked: Few<Shard<'a, S>>,
}

impl<'a, S> Shards<'a, S> {
    fn reserve<C>(inner: &'a Inner<S, C>, places: &[Place]) -> Self {
        let mut numbers: Few<usize> = places.iter().map(|place| place.shard).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let reserve = |number: &usize| inner.map.reserve_shard(*number);
        let locked = numbers.iter().map(reserve).collect();
        Self { numbers, locked }
    }

    fn of(&mut self, place: Place) -> &mut Shard<'a, S> {
        let index = self.numbers.partition_point(|number| *number < place.shard);
        &mut self.locked[index]
    }
}
