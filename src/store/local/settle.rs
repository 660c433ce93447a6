//! Corrections of earlier charges.

use super::{Inner, place::Full, stats::Counters, working_state::WorkingState};
use crate::{algorithm::Algorithm, store::Settlement, time::Clock};

impl<S: Clone, C: Clock> Inner<S, C> {
    pub(super) fn settle<A: Algorithm<State = S>>(&self, settlement: Settlement<'_, A>) {
        let own = settlement.rule.for_key(&|| settlement.key.digest());
        let rule = own.as_ref().unwrap_or(settlement.rule);
        let settlement = &Settlement { rule, ..settlement };
        let location = self.locate(settlement.policy, &settlement.key, rule.state_kind());
        let mut shard = self.map.lock(location);
        let count = |forgets: bool| {
            Counters::add(&self.counters.unsettled, forgets.into());
        };
        if let Some(mut slot) = shard.get_mut(location) {
            // Without a copy: a log may be long.
            let now = self.store_time().at();
            count(slot.forgets(settlement, now));
            slot.settle(settlement, now);
            return;
        }
        let now = self.store_time();
        if let Some(claim) = self.table.claim(location.fingerprint) {
            let mut working = self.working_state(rule, &claim, now);
            count(working.slot.forgets(settlement, now.at()));
            if working.settle(settlement, now.at()) {
                self.replace(claim, &mut shard, location, rule, working, now);
            }
            return;
        }
        // Read again: another thread may have removed the key since, at a later time than `now`.
        let now = self.store_time();
        // Units given back do not reduce an inherited debt. Otherwise a key that was reset would get more than a key that
        // was never charged.
        let owed = self.table.owed(location.fingerprint);
        let owed = owed.filter(|_| settlement.actual > settlement.charge.cost);
        let mut working = WorkingState::new(self.inherited_state(rule, owed, now));
        if !working.settle(settlement, now.at()) || working.slot.is_expired(now.at()) {
            return;
        }
        if let Err(Full) = self.insert(&mut shard, location, rule, working, now) {
            Counters::add(&self.counters.turned_away, 1);
        }
    }
}
