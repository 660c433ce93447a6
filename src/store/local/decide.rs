//! One ask: without a lock if the key is in the table, under the lock of its slot if it is in the map, and under the lock of
//! its shard if it is new.

use super::{
    Inner, Local,
    map::{Location, Shard},
    slot::MapSlot,
    table::Claim,
};
use crate::{
    algorithm::{
        Algorithm, Kind, Metering, Step,
        packed::{Meter, StoreTime},
    },
    decision::{Cost, Decision},
    key::Key,
    policy::Policy,
    store::Ask,
    time::Clock,
};

impl<A: Algorithm, C: Clock> Local<A, C> {
    /// Spends the cost of one ask if its rule allows it: what [`acquire`](crate::store::Store::acquire)
    /// does, without a list.
    // Always, as `Table::step`.
    #[inline(always)]
    pub fn decide(&self, ask: &Ask<'_, A>) -> Decision {
        ask.charged(self.decide_one(ask))
    }

    #[inline(always)]
    fn decide_one(&self, ask: &Ask<'_, A>) -> Decision {
        let inner = &*self.inner;
        let fingerprint = inner
            .seed
            .fingerprint(ask.policy(), ask.key(), ask.rule().state_kind());
        // Chosen here, not at each turn of a loop: of a rule whose kind is known nothing else is left.
        match ask.rule().meter().map(Meter::kind) {
            Some(Kind::Bucket(meter)) => {
                if let Some(decision) = inner.decide_known(fingerprint, meter, ask.cost()) {
                    return decision;
                }
            }
            Some(Kind::Queue(meter)) => {
                if let Some(decision) = inner.decide_known(fingerprint, meter, ask.cost()) {
                    return decision;
                }
            }
            Some(Kind::Window(meter)) => {
                if let Some(decision) = inner.decide_known(fingerprint, meter, ask.cost()) {
                    return decision;
                }
            }
            None => {}
        }
        match ask.rule_for_key() {
            None => inner.decide_elsewhere(fingerprint, ask.rule(), ask.cost()),
            Some(rule) => inner.decide_elsewhere(fingerprint, &rule, ask.cost()),
        }
    }

    /// How a key stands under a rule. Changes nothing, and needs no occupancy.
    #[doc(alias("peek", "dry run"))]
    pub fn look(&self, policy: &Policy, rule: &A, key: &Key) -> Decision {
        let inner = &*self.inner;
        let own = rule.for_key(&|| key.digest());
        let rule = own.as_ref().unwrap_or(rule);
        let location = inner.locate(policy, key, rule.state_kind());
        inner.look_at(&mut inner.map.lock(location), location, rule)
    }
}

impl<S: Clone, C: Clock> Inner<S, C> {
    /// Decides about a key of the table, without a lock.
    #[inline(always)]
    fn decide_known(
        &self,
        fingerprint: u64,
        meter: &impl Metering,
        cost: Cost,
    ) -> Option<Decision> {
        let now = || self.store_time();
        self.table.step(fingerprint, meter, now, cost)
    }

    /// Decides about a key that the table does not contain, or whose rule does not pack its states.
    // The rule and the cost instead of the ask: so that need not lie in memory for the others.
    fn decide_elsewhere<A: Algorithm<State = S>>(
        &self,
        fingerprint: u64,
        rule: &A,
        cost: Cost,
    ) -> Decision {
        let location = self.map.locate(fingerprint);
        let step = |slot: &mut MapSlot<S>| self.step_slot(slot, rule, cost);
        // A packed state is seldom in the map.
        if rule.meter().is_none()
            && let Some(decision) = self.map.with_known(location, step)
        {
            return decision;
        }
        self.decide_locked(location, rule, cost)
    }

    /// Decides about a key of the map.
    #[inline]
    fn step_slot<A: Algorithm<State = S>>(
        &self,
        slot: &mut MapSlot<S>,
        rule: &A,
        cost: Cost,
    ) -> Decision {
        // Read under the lock of the slot: no later than what the next one sees.
        let now = self.store_time();
        slot.step(rule, now.at(), cost).decision()
    }

    #[cold]
    fn decide_locked<A: Algorithm<State = S>>(
        &self,
        location: Location,
        rule: &A,
        cost: Cost,
    ) -> Decision {
        let shard = &mut self.map.lock(location);
        if let Some(mut slot) = shard.get_mut(location) {
            return self.step_slot(&mut slot, rule, cost);
        }
        // Read under the lock: no later than what the next one sees.
        let now = self.store_time();
        let (claim, metered) = match rule.meter() {
            Some(meter) => {
                let (claim, scan) = self.claim_or_scan(location, meter, now);
                (claim, Some((meter, scan)))
            }
            None => (self.table.claim(location.fingerprint), None),
        };
        if let Some(claim) = claim {
            return self.step_claimed(claim, shard, location, rule, cost, now);
        }
        match metered {
            Some(metered) => self.decide_new_key(shard, location, rule, metered, cost),
            None => self.decide_new_key_unpacked(shard, location, rule, cost),
        }
    }

    /// Decides about a key of the table whose slot is held.
    fn step_claimed<A: Algorithm<State = S>>(
        &self,
        claim: Claim<'_>,
        shard: &mut Shard<'_, S>,
        location: Location,
        rule: &A,
        cost: Cost,
        now: StoreTime,
    ) -> Decision {
        let mut working = self.working_state(rule, claim.word(), now);
        let step = working.step(rule, now.at(), cost);
        if !matches!(step, Step::Kept(_)) {
            self.replace(claim, shard, location, rule, working, now);
        }
        step.decision()
    }
}
