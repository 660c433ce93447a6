//! The store: the states of all keys.

use std::{collections::HashMap, sync::Mutex};

use tollgate::{
    AnyRule, Charge, Policy,
    algorithm::Algorithm,
    key::Key,
    store::{Decisions, OwnedAsks, Settlement, StateKey, Transaction},
};

use crate::{
    node_clock::NodeClock,
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
    states: Mutex<HashMap<StateKey, <AnyRule as Algorithm>::State>>,
}

impl Server {
    pub(crate) fn new(time: &Timeline) -> Self {
        Self {
            clock: NodeClock::exact(time),
            states: Mutex::default(),
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
    }
}
