//! One ask: a known key without a lock where its state is a mark, all else under its shard's lock.

use super::{
    AtCapacity, Inner, Local,
    map::{Place, Shard},
    place::Full,
    stats::Counters,
    table::Claim,
};
use crate::{
    algorithm::{Algorithm, Moment, Step},
    clock::Clock,
    decision::{Cost, Decision},
    key::Key,
    outcome::Policy,
    store::Ask,
};

impl<A: Algorithm, C: Clock> Local<A, C> {
    /// Spends the cost of one ask if its rule allows it: what [`acquire`](crate::store::Store::acquire)
    /// does, without a list.
    // Always, as `Table::step`.
    #[inline(always)]
    pub fn decide(&self, ask: &Ask<'_, A>) -> Decision {
        let inner = &*self.inner;
        let fingerprint = inner.seed.fingerprint(ask.policy(), ask.key());
        if let Some(meter) = ask.rule().meter() {
            let now = || inner.moment();
            if let Some(decision) = inner.table.step(fingerprint, meter, now, ask.cost()) {
                return decision;
            }
        }
        inner.decide_locked(fingerprint, ask.rule(), ask.cost())
    }

    /// How a key stands under a rule. Changes nothing, and needs no room.
    pub fn look(&self, policy: &Policy, rule: &A, key: &Key) -> Decision {
        let inner = &*self.inner;
        let place = inner.place(policy, key);
        let mut shard = inner.map.lock(place);
        let now = inner.moment();
        let state = inner.recall(&mut shard, place, rule, now);
        rule.look(state.as_ref(), now.at())
    }
}

impl<S: Clone, C: Clock> Inner<S, C> {
    // The rule and the cost instead of the ask: so that need not lie in memory for the others.
    #[cold]
    fn decide_locked<A: Algorithm<State = S>>(
        &self,
        fingerprint: u64,
        rule: &A,
        cost: Cost,
    ) -> Decision {
        let place = self.map.place(fingerprint);
        let mut shard = self.map.lock(place);
        // Read under the lock: no later than what the next one sees.
        let now = self.moment();
        if let Ok(decision) = self.decide_in(&mut shard, place, rule, cost, now) {
            return decision;
        }
        // Shards are locked in ascending order only, so this one must be let go.
        drop(shard);
        self.make_room(now);
        let mut shard = self.map.lock(place);
        let decided = self.decide_in(&mut shard, place, rule, cost, now);
        decided.unwrap_or_else(|Full| self.decide_at_cap(place, rule, cost, now))
    }

    /// Decides in a locked shard.
    fn decide_in<A: Algorithm<State = S>>(
        &self,
        shard: &mut Shard<'_, S>,
        place: Place,
        rule: &A,
        cost: Cost,
        now: Moment,
    ) -> Result<Decision, Full> {
        if let Some(claim) = self.table.claim(place.fingerprint) {
            return Ok(self.step_claimed(claim, shard, place, rule, cost, now));
        }
        if let Some(slot) = shard.get_mut(place) {
            let step = self.counted(rule.step(&mut slot.state, now.at(), cost));
            if !matches!(step, Step::Kept(_)) {
                self.map.date(slot, rule);
            }
            return Ok(step.decision());
        }
        let owed = self.table.owed(place.fingerprint);
        let mut state = self.debtor(rule, owed, now);
        let step = self.counted(rule.step(&mut state, now.at(), cost));
        match (step, state) {
            (Step::Kept(decision), _) if owed.is_some() => {
                Counters::add(&self.counters.held_back, 1);
                // What it will inherit can be more than what was owed, and the wait longer.
                let mut state = self.debtor(rule, self.newcomers_debt(place), now);
                return Ok(match rule.step(&mut state, now.at(), cost) {
                    Step::Kept(longer) => longer,
                    _ => decision,
                });
            }
            (Step::Kept(_), _) | (_, None) => {}
            (_, Some(state)) => self.insert(shard, place, rule, state, now)?,
        }
        Ok(step.decision())
    }

    /// Decides about a key of the table whose slot is held.
    fn step_claimed<A: Algorithm<State = S>>(
        &self,
        claim: Claim<'_>,
        shard: &mut Shard<'_, S>,
        place: Place,
        rule: &A,
        cost: Cost,
        now: Moment,
    ) -> Decision {
        let mut state = rule.state_of(claim.word().mark(), now);
        let step = self.counted(rule.step(&mut state, now.at(), cost));
        if let (Step::Wrote(_) | Step::Restarted(_), Some(state)) = (step, state) {
            self.replace(claim, shard, place, rule, state, now);
        }
        step.decision()
    }

    /// Decides about a newcomer whose shard is locked, and who found no room.
    fn decide_at_cap<A: Algorithm<State = S>>(
        &self,
        place: Place,
        rule: &A,
        cost: Cost,
        now: Moment,
    ) -> Decision {
        let (AtCapacity::InheritDebts, Some(_)) = (self.at_capacity, rule.meter()) else {
            return self.full(now);
        };
        for _ in 0..Self::PUSHES {
            let Some(debt) = self.inherited(place) else {
                break;
            };
            let mut state = rule.state_of(debt, now);
            let step = rule.step(&mut state, now.at(), cost);
            if let Step::Kept(_) = step {
                Counters::add(&self.counters.held_back, 1);
                return step.decision();
            }
            if state.is_some_and(|state| self.push_out(place, rule, &state, now)) {
                self.inserted(1);
                return step.decision();
            }
        }
        self.full(now)
    }

    pub(super) fn counted(&self, step: Step) -> Step {
        let restarted = matches!(step, Step::Restarted(_));
        Counters::add(&self.counters.restarted, u64::from(restarted));
        step
    }
}
