//! Several asks at once, all or nothing.

use smallvec::SmallVec;

use super::{
    AtCapacity, Inner, Local,
    map::{Place, Shard},
    place::Full,
    table::Claim,
};
use crate::{
    algorithm::{Algorithm, Mark, Moment, Step},
    clock::Clock,
    decision::Decision,
    store::{Ask, Decisions},
};

type Few<T> = SmallVec<[T; 4]>;

/// A key that is asked for, with what it had and what it will have.
struct Part<'a, S> {
    place: Place,
    /// Its slot in the table, held so that nobody sees it half spent, also while it is new.
    claim: Option<Claim<'a>>,
    before: Option<S>,
    after: Option<S>,
    /// The ask that named it first.
    asked_by: usize,
    /// The ask whose rule wrote last.
    written_by: Option<usize>,
    /// Whether it is nowhere yet.
    is_new: bool,
    /// Whether it found no room, and passes uncounted.
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

    /// Decides all asks while the shards of all their keys are locked, and their slots held.
    fn decide_at_once(&self, asks: &[Ask<'_, A>]) -> Decisions {
        let inner = &*self.inner;
        let places: Few<Place> = asks
            .iter()
            .map(|ask| inner.place(ask.policy(), ask.key()))
            .collect();
        let mut shards = Shards::lock(inner, &places);
        let earlier = inner.moment();
        for place in &places {
            // Before anything is recalled: later, what was recalled could be forgotten.
            inner.forgotten(shards.of(*place).forget_some(earlier.at()));
        }
        let mut parts: Few<Part<'_, A::State>> = Few::new();
        // Asks may be about one key.
        let index: Few<usize> = places
            .iter()
            .enumerate()
            .map(|(n, place)| {
                let known = |part: &Part<'_, _>| part.place.fingerprint == place.fingerprint;
                parts.iter().position(known).unwrap_or_else(|| {
                    parts.push(inner.part(&mut shards, *place, n));
                    parts.len() - 1
                })
            })
            .collect();
        // One instant for all asks. Read when all are held or known to be new: by an earlier one,
        // who was forgotten meanwhile would be full twice.
        let now = inner.moment();
        for part in &mut parts {
            let rule = asks[part.asked_by].rule();
            part.before = inner.recall_part(&mut shards, part, rule, now);
            part.after = part.before.clone();
        }

        let looks: Few<Decision> = asks
            .iter()
            .zip(&index)
            .map(|(ask, part)| ask.rule().look(parts[*part].before.as_ref(), now.at()))
            .collect();
        let admits = |(ask, look): (&Ask<'_, A>, &Decision)| look.would_admit(ask.cost());
        let all = asks.iter().zip(&looks).all(admits);

        let mut decisions = looks.clone();
        for (n, ask) in asks.iter().enumerate() {
            if !all && looks[n].would_admit(ask.cost()) {
                continue;
            }
            let part = &mut parts[index[n]];
            // Where one is refused, no other one of the same key sees what its first sight writes.
            let mut state = if all {
                part.after.take()
            } else {
                part.before.clone()
            };
            let step = ask.rule().step(&mut state, now.at(), ask.cost());
            decisions[n] = inner.counted(step).decision();
            let wrote = !matches!(step, Step::Kept(_));
            if all || wrote {
                part.after = state;
            }
            if wrote {
                part.written_by = Some(n);
            }
            if all && !decisions[n].is_admitted() {
                // One key was asked for twice.
                return only(n, decisions[n], looks);
            }
        }
        match inner.keep(&mut shards, &mut parts, asks, now) {
            Ok(()) => {
                // If another one refuses, so does the newcomer whose first sight could not be kept.
                for (decision, part) in decisions.iter_mut().zip(&index) {
                    if all && parts[*part].is_let_through {
                        *decision = inner.full(now);
                    }
                }
                decisions.into_iter().collect()
            }
            Err(part) => {
                let n = index.iter().position(|index| *index == part).unwrap_or(0);
                only(n, inner.full(now), looks)
            }
        }
    }
}

/// Nothing was spent, on account of ask `n`.
fn only(n: usize, decision: Decision, mut looks: Few<Decision>) -> Decisions {
    looks[n] = decision;
    looks.into_iter().collect()
}

impl<S: Clone, C: Clock> Inner<S, C> {
    fn part<'a>(
        &'a self,
        shards: &mut Shards<'_, S>,
        place: Place,
        asked_by: usize,
    ) -> Part<'a, S> {
        let claim = self.table.claim(place.fingerprint);
        let is_new = claim.is_none() && shards.of(place).get_mut(place).is_none();
        Part {
            place,
            claim,
            before: None,
            after: None,
            asked_by,
            written_by: None,
            is_new,
            is_let_through: false,
        }
    }

    fn recall_part<A: Algorithm<State = S>>(
        &self,
        shards: &mut Shards<'_, S>,
        part: &Part<'_, S>,
        rule: &A,
        now: Moment,
    ) -> Option<S> {
        let place = part.place;
        if let Some(claim) = &part.claim {
            return self.state_of(rule, claim.word(), now);
        }
        match shards.of(place).get_mut(place) {
            Some(slot) => slot.state.clone(),
            None => self.debtor(rule, self.debt_of(place, rule, now), now),
        }
    }

    fn debt_of<A: Algorithm<State = S>>(
        &self,
        place: Place,
        rule: &A,
        now: Moment,
    ) -> Option<Mark> {
        match rule.meter().filter(|meter| self.table.has_shape(*meter)) {
            Some(meter) => {
                let survey = self.survey(place, meter, now);
                let full = self.is_full(&survey, now);
                self.debt(&survey, full)
            }
            None => self.table.owed(place.fingerprint),
        }
    }

    /// Remembers what was written: newcomers first, for there may be no room for them.
    ///
    /// # Errors
    ///
    /// The part for which there is no room; then nothing is remembered.
    fn keep<'a, A: Algorithm<State = S>>(
        &'a self,
        shards: &mut Shards<'_, S>,
        parts: &mut [Part<'a, S>],
        asks: &[Ask<'_, A>],
        now: Moment,
    ) -> Result<(), usize> {
        let mut inserted = 0;
        for pass in [true, false] {
            for n in 0..parts.len() {
                let part = &mut parts[n];
                let Some(written_by) = part.written_by.filter(|_| part.is_new == pass) else {
                    continue;
                };
                let Some(state) = part.after.clone() else {
                    continue;
                };
                let (place, rule) = (part.place, asks[written_by].rule());
                let shard = shards.of(place);
                if let Some(claim) = part.claim.take() {
                    self.replace(claim, shard, place, rule, state, now);
                } else if let Some(slot) = shard.get_mut(place) {
                    slot.state = Some(state);
                    self.map.date(slot, rule);
                } else if let Ok(claim) = self
                    .accommodate(shard, place, rule, state.clone(), now)
                    .or_else(|Full| {
                        let claim = self.push_out_for(place, rule, &state, now);
                        claim.map(Some).ok_or(Full)
                    })
                {
                    // Held until all have room: nobody spends of what may be taken back.
                    part.claim = claim;
                    inserted += 1;
                } else if self.at_capacity == AtCapacity::AdmitNewcomers {
                    part.is_let_through = true;
                } else {
                    for newcomer in parts[..n].iter_mut().filter(|part| part.is_new) {
                        let removed = match newcomer.claim.take() {
                            Some(claim) => {
                                claim.vacate();
                                true
                            }
                            None => shards.of(newcomer.place).remove(newcomer.place).is_some(),
                        };
                        self.room.give(usize::from(removed));
                    }
                    return Err(n);
                }
            }
        }
        self.inserted(inserted);
        Ok(())
    }
}

/// The shards of several places, locked in ascending order.
struct Shards<'a, S> {
    numbers: Few<usize>,
    locked: Few<Shard<'a, S>>,
}

impl<'a, S> Shards<'a, S> {
    fn lock<C>(inner: &'a Inner<S, C>, places: &[Place]) -> Self {
        let mut numbers: Few<usize> = places.iter().map(|place| place.shard).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let lock = |number: &usize| inner.map.lock_shard(*number);
        let locked = numbers.iter().map(lock).collect();
        Self { numbers, locked }
    }

    fn of(&mut self, place: Place) -> &mut Shard<'a, S> {
        let index = self.numbers.partition_point(|number| *number < place.shard);
        &mut self.locked[index]
    }
}
