//! The states of a store in a map.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use tollgate::{
    Policy,
    algorithm::Algorithm,
    key::Key,
    store::{
        Backend, StoreError,
        driver::{Decisions, StateKey, Transact, Transaction},
    },
};

/// States in a map, which clones share.
pub(crate) struct MapStore<R: Algorithm>(pub(crate) Arc<Mutex<HashMap<StateKey, R::State>>>);

impl<R: Algorithm> Default for MapStore<R> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<R: Algorithm> Clone for MapStore<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Algorithm> Backend for MapStore<R> {
    type Error = StoreError;
}

impl<R: Algorithm> Transact<R> for MapStore<R> {
    fn transact(&self, transaction: Transaction<'_, R>) -> Result<Decisions, StoreError> {
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

    fn reset(&self, policy: &Policy, key: &Key) -> Result<(), StoreError> {
        let mut states = self.0.lock().unwrap();
        states.retain(|state, _| !state.is_of(policy, key));
        Ok(())
    }
}
