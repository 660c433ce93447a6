//! The asks of a request that outlive its call.

use smallvec::SmallVec;

use crate::{
    key::Key,
    outcome::Outcome,
    policy::Policy,
    store::{Ask, Decisions, Settlement, Store},
};

/// The asks of a request, owned.
pub(super) struct OwnedAsks<Rule>(SmallVec<[(Policy, Rule, Key); 1]>);

impl<Rule: Clone> OwnedAsks<Rule> {
    pub(super) fn new(asks: &[Ask<'_, Rule>]) -> Self {
        let owned = |ask: &Ask<'_, Rule>| (ask.policy().clone(), ask.rule().clone(), *ask.key());
        Self(asks.iter().map(owned).collect())
    }
}

impl<Rule> OwnedAsks<Rule> {
    #[cfg(feature = "tracing")]
    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.0.iter().map(|(policy, ..)| policy)
    }

    /// Returns the outcome of a request with these decisions, one for each ask.
    pub(super) fn outcome(&self, decisions: &Decisions) -> Outcome {
        let asked = self.0.iter().map(|(policy, _, key)| (policy, key));
        Outcome::of(asked, decisions)
    }

    /// Gives back the charges of the decisions, one for each ask.
    pub(super) fn settle_back<S: Store<Rule>>(&self, store: &S, decisions: &Decisions) {
        let charged = self.0.iter().zip(decisions.as_slice());
        let settlements = charged.filter_map(|((policy, rule, key), decision)| {
            let charge = decision.charge()?;
            Some(Settlement {
                policy,
                rule,
                key: *key,
                charge,
                actual: 0,
            })
        });
        // A caller that is being dropped cannot await: remote stores make settlements in the background.
        drop(store.settle(settlements.collect()));
    }
}
