//! A store in memory that grants units, and the nodes of a fleet that share it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use tollgate::{
    Policy,
    algorithm::{Algorithm, Leasable},
    key::Key,
    store::{
        Backend, Decisions, Error, LeaseConfig, Leased, StateKey, StoreExt, Transact, Transaction,
        Transactional,
    },
    time::ManualClock,
};

/// The states of a server. Clones share them.
#[derive(Clone)]
pub(crate) struct States<R: Algorithm>(Arc<Mutex<HashMap<StateKey, R::State>>>);

impl<R: Algorithm> Default for States<R> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<R: Algorithm> Backend for States<R> {
    type Error = Error;
}

impl<R: Algorithm> Transact<R> for States<R> {
    fn transact(&self, transaction: Transaction<'_, R>) -> Result<Decisions, Error> {
        let mut states = self.0.lock().unwrap();
        let (decisions, changes) = transaction.decide(|key| states.get(key).cloned());
        for change in changes {
            match change.state {
                Some(state) => states.insert(change.key, state),
                None => states.remove(&change.key),
            };
        }
        Ok(decisions)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Result<(), Error> {
        let mut states = self.0.lock().unwrap();
        states.retain(|state, _| !state.is_of(policy, key));
        Ok(())
    }
}

pub(crate) type Server<R> = Transactional<States<R>, ManualClock>;
pub(crate) type Node<R> = Leased<Server<R>, R, ManualClock>;

/// Returns a node with leases on a server. Both have one clock.
pub(crate) fn node<R>(states: &States<R>, clock: &ManualClock, config: LeaseConfig) -> Node<R>
where
    R: Leasable + Send + Sync + 'static,
    R::State: Send,
{
    Transactional::with_clock(states.clone(), clock.clone()).leased(config.clock(clock.clone()))
}
