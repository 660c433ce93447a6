//! Corrections of earlier charges.

use super::{Inner, place::Full, stats::Counters};
use crate::{
    algorithm::{Algorithm, Moment},
    clock::Clock,
    store::Settlement,
};

impl<S: Clone, C: Clock> Inner<S, C> {
    pub(super) fn settle<A: Algorithm<State = S>>(&self, settlement: &Settlement<'_, A>) {
        let own = settlement.rule.for_key(&|| settlement.key.digest());
        let rule = own.as_ref().unwrap_or(settlement.rule);
        let corrected = |before, now| corrected(rule, settlement, before, now);
        let place = self.place(settlement.policy, &settlement.key);
        let mut shard = self.map.lock(place);
        let now = self.moment();
        if let Some(claim) = self.table.claim(place.fingerprint) {
            let before = self.state_of(rule, claim.word(), now);
            match corrected(before, now) {
                Corrected::Matters(state) => {
                    self.replace(claim, &mut shard, place, rule, state, now);
                }
                Corrected::Ended => {
                    claim.vacate();
                    self.forgotten(1);
                }
                Corrected::Not => {}
            }
            return;
        }
        if let Some(slot) = shard.get_mut(place) {
            match corrected(slot.state.clone(), now) {
                Corrected::Matters(state) => slot.state = Some(state),
                Corrected::Ended => slot.state = None,
                Corrected::Not => return,
            }
            self.map.date(slot, rule);
            return;
        }
        // Read again: it may have been forgotten since, by the time that another thread read.
        let now = self.moment();
        // What is given back does not lessen what newcomers owe: who was reset, say, would have more
        // by it than who never came.
        let owed = self.table.owed(place.fingerprint);
        let owed = owed.filter(|_| settlement.actual > settlement.charge.cost);
        let before = self.debtor(rule, owed, now);
        let Corrected::Matters(state) = corrected(before, now) else {
            return;
        };
        match self.insert(&mut shard, place, rule, state.clone(), now) {
            Ok(()) => {}
            Err(Full) if self.push_out_for(place, rule, &state, now).is_some() => self.inserted(1),
            Err(Full) => Counters::add(&self.counters.turned_away, 1),
        }
    }
}

/// What a correction left of a key.
enum Corrected<S> {
    Matters(S),
    /// It says nothing any more.
    Ended,
    /// It said nothing to this rule before, and does not now: another rule may have written it, to
    /// which it says something.
    Not,
}

fn corrected<A: Algorithm>(
    rule: &A,
    settlement: &Settlement<'_, A>,
    before: Option<A::State>,
    now: Moment,
) -> Corrected<A::State> {
    let (charge, actual) = (&settlement.charge, settlement.actual);
    let matters = |state: &A::State| rule.forgettable_at(state) > now.at();
    let mattered = before.as_ref().is_some_and(matters);
    let mut state = before;
    rule.settle(&mut state, charge, now.at(), actual);
    match state.filter(matters) {
        Some(state) => Corrected::Matters(state),
        None if mattered => Corrected::Ended,
        None => Corrected::Not,
    }
}
