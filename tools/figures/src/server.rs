//! The store: the states of all keys.

use std::{collections::HashMap, sync::Mutex};

use tollgate::{
    AnyRule, Charge, Policy,
    key::Key,
    store::{
        StoreError,
        driver::{Decisions, OwnedAsks, Pulled, Settlement, StateKey, Transaction},
    },
    time::Clock,
};

use crate::{
    node_clock::NodeClock,
    owned_delta::{OwnedDelta, State},
    timeline::{Timeline, lock},
};

/// A request to the store.
pub(crate) enum Operation {
    Acquire(OwnedAsks<AnyRule>),
    Look(OwnedAsks<AnyRule>),
    /// Made once: a copy that arrives later finds none.
    Settle(Mutex<Vec<OwnedSettlement>>),
    Reset(Policy, Key),
}

/// A settlement that travels.
pub(crate) struct OwnedSettlement {
    pub(crate) policy: Policy,
    pub(crate) rule: AnyRule,
    pub(crate) key: Key,
    pub(crate) charge: Charge,
    pub(crate) actual: u64,
}

/// The store, which decides by an exact clock.
pub(crate) struct Server {
    clock: NodeClock,
    states: Mutex<HashMap<StateKey, State>>,
    /// The number of the last delta of each node to a key.
    last: Mutex<HashMap<(StateKey, u64), u64>>,
}

impl Server {
    pub(crate) fn new(time: &Timeline) -> Self {
        Self {
            clock: NodeClock::exact(time),
            states: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// Does what a request says. A request that arrives twice is done twice.
    pub(crate) fn run(&self, operation: &Operation) -> Decisions {
        match operation {
            Operation::Acquire(asks) => {
                self.decide(Transaction::acquire(&asks.to_vec(), &self.clock))
            }
            Operation::Look(asks) => self.decide(Transaction::look(&asks.to_vec(), &self.clock)),
            Operation::Settle(list) => {
                let list = std::mem::take(&mut *lock(list));
                let mut names = Vec::new();
                let mut charges = Vec::new();
                for owned in list {
                    names.push((owned.policy, owned.rule, owned.key));
                    charges.push((owned.charge, owned.actual));
                }
                let settlements = names.iter().zip(charges).filter_map(
                    |((policy, rule, key), (charge, actual))| {
                        Settlement::new(policy, rule, *key, charge, actual).ok()
                    },
                );
                self.decide(Transaction::settle(settlements.collect(), &self.clock))
            }
            Operation::Reset(policy, key) => {
                lock(&self.states).retain(|state, _| !state.is_of(policy, key));
                Decisions::default()
            }
        }
    }

    /// Adds deltas, each once, and returns the states of their keys.
    pub(crate) fn sync(&self, deltas: &[OwnedDelta]) -> Vec<Result<Pulled<State>, StoreError>> {
        let at = self.clock.now();
        let (mut states, mut last) = (lock(&self.states), lock(&self.last));
        for delta in deltas.iter().filter(|delta| delta.units > 0) {
            let last = last.entry((delta.key.clone(), delta.batch.node));
            let last = last.or_default();
            if delta.batch.number <= *last {
                continue;
            }
            *last = delta.batch.number;
            let mut state = states.remove(&delta.key);
            delta.add_to(&mut state, at);
            states.extend(state.map(|state| (delta.key.clone(), state)));
        }
        let pulled = |delta: &OwnedDelta| {
            let state = states.get(&delta.key).cloned();
            Ok(Pulled { at, state })
        };
        deltas.iter().map(pulled).collect()
    }

    fn decide(&self, transaction: Transaction<'_, AnyRule>) -> Decisions {
        let mut states = lock(&self.states);
        let (decisions, changes) = transaction.decide(|key| states.get(key).cloned());
        for change in changes {
            match change.state {
                Some(state) => states.insert(change.key, state),
                None => states.remove(&change.key),
            };
        }
        decisions
    }

    /// Forgets all states.
    pub(crate) fn lose(&self) {
        lock(&self.states).clear();
        lock(&self.last).clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate::{
        Cost, Timestamp,
        algorithm::Algorithm,
        store::driver::{Ask, Batch},
    };

    use super::*;

    /// Also if a later one of the node has arrived meanwhile.
    #[test]
    fn a_delta_that_arrives_again_counts_once() {
        let server = Server::new(&Timeline::default());
        let (policy, rule) = (Policy::new("test"), "token-bucket 10/s".parse::<AnyRule>());
        let rule = rule.expect("a rule");
        let delta = |node, number, units| OwnedDelta {
            key: Ask::new(&policy, &rule, Key::from(1), Cost::ONE).state_key(),
            rule: rule.clone(),
            batch: Batch { node, number },
            age: Duration::ZERO,
            units,
        };
        let left = |deltas: &[OwnedDelta]| {
            let pulled = server.sync(deltas).pop().expect("a result");
            let pulled = pulled.expect("a state");
            let look = rule.look(pulled.state.as_ref(), pulled.at);
            assert!(pulled.at > Timestamp::default());
            look.remaining()
        };
        assert_eq!(left(&[delta(1, 1, 2)]), Some(8));
        assert_eq!(left(&[delta(1, 1, 2), delta(1, 2, 1)]), Some(7));
        assert_eq!(left(&[delta(1, 1, 2)]), Some(7));
        assert_eq!(left(&[delta(2, 1, 3)]), Some(4));
        assert_eq!(left(&[delta(2, 9, 0)]), Some(4));
        assert_eq!(
            left(&[delta(2, 2, 1)]),
            Some(3),
            "a question takes no number"
        );
    }
}
