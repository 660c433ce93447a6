//! Corrections of earlier charges.

use super::{Inner, stats::Counters};
use crate::{algorithm::Algorithm, clock::Clock, store::Settlement};

impl<S: Clone, C: Clock> Inner<S, C> {
    pub(super) fn settle<A: Algorithm<State = S>>(&self, settlement: &Settlement<'_, A>) {
        let Settlement {
            policy,
            rule,
            key,
            charge,
            actual,
        } = settlement;
        let place = self.place(policy, key);
        let mut shard = self.map.lock(place);
        let now = self.moment();
        let correct = |state: &mut Option<S>| rule.settle(state, charge, now.at(), *actual);
        if let Some(claim) = self.table.claim(place.fingerprint) {
            let mut state = rule.state_of(claim.word().mark(), now);
            correct(&mut state);
            match state.filter(|state| rule.forgettable_at(state) > now.at()) {
                Some(state) => self.replace(claim, &mut shard, place, *rule, state, now),
                None => {
                    claim.vacate();
                    self.forgotten(1);
                }
            }
            return;
        }
        if let Some(slot) = shard.get_mut(place) {
            correct(&mut slot.state);
            self.map.date(slot, *rule);
            return;
        }
        let owed = self.table.owed(place.fingerprint);
        let mut state = owed.and_then(|owed| rule.state_of(owed, now));
        correct(&mut state);
        let matters = state.filter(|state| rule.forgettable_at(state) > now.at());
        let kept = matters.map(|state| self.insert(&mut shard, place, *rule, state, now));
        if let Some(Err(_)) = kept {
            Counters::add(&self.counters.turned_away, 1);
        }
    }
}
