//! Several asks at once, all or nothing.

use smallvec::SmallVec;

use super::{
    Local,
    table::{Place, Shard, Slot},
};
use crate::{
    algorithm::Algorithm,
    clock::{Clock, Timestamp},
    decision::Decision,
    store::{Ask, Decisions},
};

impl<A: Algorithm, C: Clock> Local<A, C> {
    /// Decides all asks under the locks of all their shards, taken in ascending order.
    pub(super) fn decide_all(&self, asks: &[Ask<'_, A>]) -> Decisions {
        let inner = &*self.inner;
        if inner.table.is_full() {
            // Later, with shards locked, room could only be found in those.
            inner.make_room(inner.clock.now());
        }
        let places: SmallVec<[Place; 4]> = asks
            .iter()
            .map(|ask| inner.place(ask.policy(), ask.key()))
            .collect();
        let mut numbers: SmallVec<[usize; 4]> = places.iter().map(|place| place.shard).collect();
        numbers.sort_unstable();
        numbers.dedup();
        // The time is read under the locks: one instant for all asks.
        let mut locked = Locked {
            shards: numbers
                .iter()
                .map(|number| inner.table.lock_shard(*number))
                .collect(),
            numbers,
        };
        let now = inner.clock.now();

        let looks: SmallVec<[Decision; 4]> = asks
            .iter()
            .zip(&places)
            .map(|(ask, place)| locked.look(ask, *place, now))
            .collect();
        let mut pairs = asks.iter().zip(&looks);
        let all = pairs.all(|(ask, look)| look.would_admit(ask.cost()));

        let mut decisions = SmallVec::<[Decision; 4]>::new();
        for ((ask, place), look) in asks.iter().zip(&places).zip(looks) {
            if !all && look.would_admit(ask.cost()) {
                decisions.push(look);
                continue;
            }
            let decision = self.decide_in(&mut locked, *place, ask, now);
            decisions.push(decision);
            if all && !decision.is_admitted() {
                // The table is full, or the same key was asked for twice.
                self.give_back(&mut locked, asks, &places, &mut decisions, now);
                let rest = asks.iter().zip(&places).skip(decisions.len());
                let rest: SmallVec<[Decision; 4]> = rest
                    .map(|(ask, place)| locked.look(ask, *place, now))
                    .collect();
                decisions.extend(rest);
                break;
            }
        }
        decisions.into_iter().collect()
    }

    fn decide_in(
        &self,
        locked: &mut Locked<'_, A::State>,
        place: Place,
        ask: &Ask<'_, A>,
        now: Timestamp,
    ) -> Decision {
        let inner = &*self.inner;
        let shard = locked.shard(place);
        if let Some(slot) = shard.get_mut(place) {
            return inner.step(slot, ask, now);
        }
        let mut slot = Slot::default();
        let decision = inner.step(&mut slot, ask, now);
        if slot.state.is_none() {
            return decision;
        }
        match inner.insert(shard, place, slot, now) {
            Ok(()) => decision,
            Err(_) => inner.full(now),
        }
    }

    /// Refunds all but the last decision, which was no admission.
    fn give_back(
        &self,
        locked: &mut Locked<'_, A::State>,
        asks: &[Ask<'_, A>],
        places: &[Place],
        decisions: &mut [Decision],
        now: Timestamp,
    ) {
        for ((ask, place), decision) in asks.iter().zip(places).zip(decisions) {
            let Some(charge) = decision.charge() else {
                continue;
            };
            if let Some(slot) = locked.shard(*place).get_mut(*place) {
                ask.rule().settle(&mut slot.state, &charge, now, 0);
                self.inner.table.date(slot, ask.rule());
                *decision = ask.rule().look(slot.state.as_ref(), now);
            }
        }
    }
}

/// The shards of several places.
struct Locked<'a, S> {
    numbers: SmallVec<[usize; 4]>,
    shards: SmallVec<[Shard<'a, S>; 4]>,
}

impl<'a, S> Locked<'a, S> {
    fn shard(&mut self, place: Place) -> &mut Shard<'a, S> {
        let index = self.numbers.partition_point(|number| *number < place.shard);
        &mut self.shards[index]
    }

    fn look<A: Algorithm<State = S>>(
        &mut self,
        ask: &Ask<'_, A>,
        place: Place,
        now: Timestamp,
    ) -> Decision {
        let slot = self.shard(place).get_mut(place);
        ask.rule()
            .look(slot.and_then(|slot| slot.state.as_ref()), now)
    }
}
