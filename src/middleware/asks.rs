//! The asks of a request that outlive its call.

use crate::{
    observe::Observer,
    outcome::{Outcome, StateHash},
    store::{Decisions, OwnedAsks, Settlement, Store},
};

/// Returns the outcome of a request with these decisions, one for each ask.
pub(super) fn outcome<Rule>(asks: &OwnedAsks<Rule>, decisions: &Decisions) -> Outcome {
    // No layer reads it: the request is over.
    let asked = asks.parts();
    let asked = asked.map(|(policy, key, _)| (policy, key, StateHash::default()));
    Outcome::of(asked, decisions)
}

/// Gives back the charges of the decisions, one for each ask.
pub(super) fn settle_back<Rule, S: Store<Rule>>(
    asks: &OwnedAsks<Rule>,
    store: &S,
    observer: &impl Observer,
    decisions: &Decisions,
) {
    let charged = asks.iter().zip(decisions.as_slice());
    let settlements = charged.filter_map(|(ask, decision)| {
        let charge = decision.charge()?;
        observer.settled(ask.policy(), ask.key(), charge.cost, 0);
        Some(Settlement {
            policy: ask.policy(),
            rule: ask.rule(),
            key: *ask.key(),
            charge,
            actual: 0,
            is_grant: false,
        })
    });
    // A caller that is being dropped cannot await: remote stores make settlements in the
    // background.
    drop(store.settle(settlements.collect()));
}
