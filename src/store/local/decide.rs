//! Decisions about one ask, and corrections of earlier charges.
//!
//! A key in the table is decided without a lock, a key in the map under the lock of its slot, and a
//! new key under the lock of its shard.

use super::{
    Local, LocalInner,
    evict::Full,
    map::{Location, Shard},
    state::{MapSlot, WorkingState},
    table::Claim,
};
use crate::{
    algorithm::{
        Algorithm, InFlight, PackedAlgorithm, Step, StepPacked,
        packed::{InMemory, PackedRule, TwoBuckets},
    },
    decision::{Cost, Decision},
    key::Key,
    policy::Policy,
    store::{Ask, Settlement, engine::postponed},
    time::{Clock, Timestamp},
};

impl<A: Algorithm, C: Clock> Local<A, C> {
    /// Spends the cost of one ask if its rule allows it, like
    /// [`acquire`](crate::store::Store::acquire) with a single ask.
    // Always inlined, as `Table::step` is.
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
        // Matched once, outside of the loop: for a rule whose kind is a constant, the compiler
        // removes the other branches.
        match ask.rule().packed_rule().map(PackedRule::algorithm) {
            Some(PackedAlgorithm::Bucket(packed_rule)) => {
                if let Some(decision) = inner.decide_known(fingerprint, packed_rule, ask.cost()) {
                    return decision;
                }
            }
            Some(PackedAlgorithm::Queue(packed_rule)) => {
                if let Some(decision) = inner.decide_known(fingerprint, packed_rule, ask.cost()) {
                    return decision;
                }
            }
            Some(PackedAlgorithm::Window(packed_rule)) => {
                if let Some(decision) = inner.decide_known(fingerprint, packed_rule, ask.cost()) {
                    return decision;
                }
            }
            Some(PackedAlgorithm::Slices(packed_rule)) => {
                if let Some(decision) = inner.decide_known(fingerprint, packed_rule, ask.cost()) {
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

    /// Returns the decision that a key would get under a rule, without spending. A new key is not
    /// inserted.
    #[doc(alias("peek", "dry run"))]
    pub fn look(&self, policy: &Policy, rule: &A, key: &Key) -> Decision {
        let inner = &*self.inner;
        let own = rule.for_key(&|| key.digest());
        let rule = own.as_ref().unwrap_or(rule);
        let location = inner.locate(policy, key, rule.state_kind());
        inner.look_at(&mut inner.map.lock(location), location, rule)
    }
}

impl<S: Clone, C: Clock> LocalInner<S, C> {
    /// Decides about a key in the table, without a lock. Returns `None` if it is not there.
    #[inline(always)]
    fn decide_known(
        &self,
        fingerprint: u64,
        packed_rule: &impl StepPacked,
        cost: Cost,
    ) -> Option<Decision> {
        let now = || self.store_time();
        self.table.step(fingerprint, packed_rule, now, cost)
    }

    /// Decides about a key that [`decide_known`](Self::decide_known) does not.
    // Takes the rule and the cost instead of the ask, so that the fast path can keep the ask in
    // registers.
    fn decide_elsewhere<A: Algorithm<State = S>>(
        &self,
        fingerprint: u64,
        rule: &A,
        cost: Cost,
    ) -> Decision {
        if let Some(buckets) = rule.two_buckets()
            && let Some(decision) = self.decide_two_words(fingerprint, buckets, cost)
        {
            return decision;
        }
        if let Some(rule) = rule.packed_in_flight()
            && let Some((held, now)) = self.ask_in_flight(fingerprint, rule, cost)
        {
            return rule.decision(held, now, cost);
        }
        let location = self.map.locate(fingerprint);
        let step = |slot: &mut MapSlot<S>| self.step_slot(slot, rule, cost);
        // Packed states are rarely in the map.
        if rule.packed_rule().is_none()
            && let Some(decision) = self.map.with_known(location, step)
        {
            return decision;
        }
        self.decide_locked(location, rule, cost)
    }

    /// Decides about a key whose state is in two words of the table, without a lock. Returns `None`
    /// if it is not there.
    #[inline(always)]
    fn decide_two_words(
        &self,
        fingerprint: u64,
        buckets: TwoBuckets<'_>,
        cost: Cost,
    ) -> Option<Decision> {
        let now = || self.store_time();
        self.table
            .step_two_words(fingerprint, now, |until, words, now| {
                let (written, decision) = buckets.step(words, now, cost);
                let postpone = |written| {
                    let [before, after] = [words, written].map(|words| buckets.end(words));
                    let until = postponed(until, before, after, now.packed().get());
                    (until, written)
                };
                (written.map(postpone), decision)
            })
    }

    /// Spends the cost of a call in flight if its rule allows it, without a lock. Returns what was
    /// held before, and the time; `None` if the key is not in the table.
    // Not the decision, which would be copied out of the option.
    #[inline(always)]
    fn ask_in_flight(
        &self,
        fingerprint: u64,
        rule: &InFlight,
        cost: Cost,
    ) -> Option<(u64, Timestamp)> {
        let now = self.store_time();
        let former = self.table.change_in_flight(fingerprint, |packed| {
            match rule.admitted(packed.held(), cost) {
                Some(all) => packed.max(now.packed()).then_holding(all),
                None => Some(packed),
            }
        })?;
        Some((former.held(), now.at()))
    }

    /// Corrects what calls in flight hold of a key in the table, without a lock. Returns `false` if
    /// it is not there.
    #[inline(always)]
    fn settle_in_flight<A>(&self, fingerprint: u64, settlement: &Settlement<'_, A>) -> bool {
        let (charge, actual) = (&settlement.charge, settlement.actual);
        let former = self.table.change_in_flight(fingerprint, |packed| {
            // What nobody holds is corrected as for a key that is not known.
            let held = Some(packed.held()).filter(|held| *held > 0)?;
            packed.then_holding(InFlight::settled(held, charge, actual))
        });
        former.is_some()
    }

    /// Decides about a key in the map.
    #[inline]
    fn step_slot<A: Algorithm<State = S>>(
        &self,
        slot: &mut MapSlot<S>,
        rule: &A,
        cost: Cost,
    ) -> Decision {
        // Read under the lock of the slot, so the next holder sees no earlier time.
        let now = self.store_time();
        slot.step(rule, now.at(), cost).decision()
    }

    /// Decides about a key under the lock of its shard.
    #[cold]
    fn decide_locked<A: Algorithm<State = S>>(
        &self,
        location: Location,
        rule: &A,
        cost: Cost,
    ) -> Decision {
        let packed_rule = rule.packed_rule();
        let shard = &mut self.map.lock(location);
        if let Some(mut slot) = shard.get_mut(location) {
            return self.step_slot(&mut slot, rule, cost);
        }
        if let Some(packed_rule) = packed_rule
            && let Some(decision) =
                self.decide_in_free_slot(location, rule.state_kind(), packed_rule, cost)
        {
            return decision;
        }
        if let Some(claim) = self.table.claim(location.fingerprint) {
            return self.step_claimed(claim, shard, location, rule, cost);
        }
        match packed_rule {
            Some(packed_rule) => self.decide_new_key(shard, location, rule, packed_rule, cost),
            None => self.decide_new_key_unpacked(shard, location, rule, cost),
        }
    }

    /// Decides about a key in the table whose slot this thread holds.
    fn step_claimed<A: Algorithm<State = S>>(
        &self,
        claim: Claim<'_>,
        shard: &mut Shard<'_, S>,
        location: Location,
        rule: &A,
        cost: Cost,
    ) -> Decision {
        // Read while the slot is held, so the next holder sees no earlier time.
        let now = self.store_time();
        let mut working = self.working_state(rule, &claim, now);
        let step = working.step(rule, now.at(), cost);
        if !matches!(step, Step::Kept(_)) {
            self.replace(claim, shard, location, rule, working, now);
        }
        step.decision()
    }

    /// Corrects an earlier charge.
    #[inline]
    pub(super) fn settle<A: Algorithm<State = S>>(&self, settlement: &Settlement<'_, A>) {
        match settlement.rule_for_key() {
            None => self.settle_by_own_rule(settlement),
            Some(rule) => self.settle_by_own_rule(&Settlement {
                rule: &rule,
                charge: settlement.charge.duplicate(),
                ..*settlement
            }),
        }
    }

    /// Corrects an earlier charge by the rule of its key.
    fn settle_by_own_rule<A: Algorithm<State = S>>(&self, settlement: &Settlement<'_, A>) {
        let rule = settlement.rule;
        let location = self.locate(settlement.policy, &settlement.key, rule.state_kind());
        if rule.packed_in_flight().is_some()
            && self.settle_in_flight(location.fingerprint, settlement)
        {
            return;
        }
        let settle = |slot: &mut MapSlot<S>| self.settle_slot(slot, settlement);
        // As a decision about it: packed states are rarely in the map.
        let is_packed = rule.packed_rule().is_some() || rule.two_buckets().is_some();
        if is_packed || self.map.with_known(location, settle).is_none() {
            self.settle_locked(location, settlement);
        }
    }

    /// Corrects a charge of a key in the map.
    #[inline]
    fn settle_slot<A: Algorithm<State = S>>(
        &self,
        slot: &mut MapSlot<S>,
        settlement: &Settlement<'_, A>,
    ) {
        // Without a copy: a log may be long.
        let now = self.store_time().at();
        let forgets = slot.forgets(settlement, now);
        self.count_forgotten(forgets);
        slot.settle(settlement, now);
    }

    /// Counts a settlement that refunds nothing.
    #[inline]
    fn count_forgotten(&self, forgets: bool) {
        if forgets {
            self.counters.unsettled.add(1);
        }
    }

    /// Corrects a charge under the lock of the key's shard.
    #[cold]
    fn settle_locked<A: Algorithm<State = S>>(
        &self,
        location: Location,
        settlement: &Settlement<'_, A>,
    ) {
        let rule = settlement.rule;
        let mut shard = self.map.lock(location);
        if let Some(mut slot) = shard.get_mut(location) {
            return self.settle_slot(&mut slot, settlement);
        }
        let now = self.store_time();
        if let Some(claim) = self.table.claim(location.fingerprint) {
            let mut working = self.working_state(rule, &claim, now);
            self.count_forgotten(working.slot.forgets(settlement, now.at()));
            if working.settle(settlement, now.at()) {
                self.replace(claim, &mut shard, location, rule, working, now);
            }
            return;
        }
        // Read again: another thread may have removed the key since, at a later time than `now`.
        let now = self.store_time();
        // A refund does not reduce inherited usage. Otherwise a key that was reset would get more
        // than a key that was never charged.
        let usage = self.table.inherited_usage(location.fingerprint);
        let usage = usage.filter(|_| settlement.actual > settlement.charge.cost);
        let mut working = WorkingState::new(self.inherited_state(rule, usage, now));
        self.count_forgotten(working.slot.forgets(settlement, now.at()));
        if !working.settle(settlement, now.at()) || working.slot.is_expired(now.at()) {
            return;
        }
        if let Err(Full) = self.insert(&mut shard, location, rule, working, now) {
            self.counters.turned_away.add(1);
        }
    }
}
