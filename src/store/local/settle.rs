//! Corrections of earlier charges.

use super::{Inner, held::Held, place::Full, stats::Counters};
use crate::{algorithm::Algorithm, store::Settlement, time::Clock};

impl<S: Clone, C: Clock> Inner<S, C> {
    pub(super) fn settle<A: Algorithm<State = S>>(&self, settlement: Settlement<'_, A>) {
        let own = settlement.rule.for_key(&|| settlement.key.digest());
        let rule = own.as_ref().unwrap_or(settlement.rule);
        let settlement = &Settlement { rule, ..settlement };
        let place = self.place(settlement.policy, &settlement.key, rule.state_kind());
        let mut shard = self.map.lock(place);
        if let Some(mut slot) = shard.get_mut(place) {
            // In place: a log may be long.
            slot.settle(settlement, self.store_time().at());
            return;
        }
        let now = self.store_time();
        if let Some(claim) = self.table.claim(place.fingerprint) {
            let mut held = self.held(rule, claim.word(), now);
            if held.settle(settlement, now.at()) {
                self.replace(claim, &mut shard, place, rule, held, now);
            }
            return;
        }
        // Read again: it may have been forgotten since, by the time that another thread read.
        let now = self.store_time();
        // What is given back does not lessen what newcomers owe: who was reset, say, would have more
        // by it than who never came.
        let owed = self.table.owed(place.fingerprint);
        let owed = owed.filter(|_| settlement.actual > settlement.charge.cost);
        let mut held = Held::new(self.debtor(rule, owed, now));
        if !held.settle(settlement, now.at()) || held.slot.is_forgettable(now.at()) {
            return;
        }
        if let Err(Full) = self.insert(&mut shard, place, rule, held, now) {
            Counters::add(&self.counters.turned_away, 1);
        }
    }
}
