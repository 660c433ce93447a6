//! Two nodes behind one store.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tollgate::{
    Policy,
    key::Key,
    store::{Ask, Backend, Check, Settlement, Store},
};

/// Alternates between two stores.
#[derive(Clone)]
pub(super) struct InTurns<S> {
    nodes: [S; 2],
    calls: Arc<AtomicU64>,
}

impl<S> InTurns<S> {
    pub(super) fn new(one: S, other: S) -> Self {
        Self {
            nodes: [one, other],
            calls: Arc::default(),
        }
    }

    fn next(&self) -> &S {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        &self.nodes[call as usize % 2]
    }
}

impl<S: Backend> Backend for InTurns<S> {
    type Error = S::Error;
}

impl<Rule, S: Store<Rule>> Store<Rule> for InTurns<S> {
    type Answer = S::Answer;
    type Done = S::Done;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.next().acquire(asks)
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.next().look(asks)
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        self.next().settle(settlements)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.next().reset(policy, key)
    }
}
