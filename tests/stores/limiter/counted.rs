//! A store that counts its calls.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use tollgate::{
    Policy,
    key::Key,
    store::{
        Backend, Store,
        driver::{Ask, Check, Settlement, delegate},
    },
};

/// The calls of a store, by what they are about.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) looks_at_blocks: AtomicU64,
    pub(crate) writes_of_blocks: AtomicU64,
    pub(crate) acquires: AtomicU64,
    pub(crate) others: AtomicU64,
}

#[derive(Clone, Debug)]
pub(crate) struct Counted<S> {
    pub(crate) store: S,
    pub(crate) calls: Arc<Calls>,
}

impl<S> Counted<S> {
    pub(crate) fn new(store: S) -> Self {
        Self {
            store,
            calls: Arc::default(),
        }
    }
}

fn is_of_blocks(policy: &Policy) -> bool {
    policy.name().ends_with("!blocked")
}

impl<S: Backend> Backend for Counted<S> {
    type Error = S::Error;

    fn address(&self) -> Option<&str> {
        Some("counted")
    }

    fn unsettled(&self) -> Option<u64> {
        Some(17)
    }

    fn shard(&self, policy: &Policy, _: &Key) -> u32 {
        policy.name().len() as u32
    }
}

impl<Rule, S: Store<Rule>> Store<Rule> for Counted<S> {
    type Answer = S::Answer;
    type Done = S::Done;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        match asks.iter().any(|ask| is_of_blocks(ask.policy())) {
            true => self.calls.writes_of_blocks.fetch_add(1, Relaxed),
            false => self.calls.acquires.fetch_add(1, Relaxed),
        };
        self.store.acquire(asks)
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        match asks.iter().any(|ask| is_of_blocks(ask.policy())) {
            true => self.calls.looks_at_blocks.fetch_add(1, Relaxed),
            false => self.calls.others.fetch_add(1, Relaxed),
        };
        self.store.look(asks)
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let mut of_blocks = settlements.iter().map(Settlement::policy);
        match of_blocks.any(is_of_blocks) {
            true => self.calls.writes_of_blocks.fetch_add(1, Relaxed),
            false => self.calls.others.fetch_add(1, Relaxed),
        };
        self.store.settle(settlements)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        match is_of_blocks(policy) {
            true => self.calls.writes_of_blocks.fetch_add(1, Relaxed),
            false => self.calls.others.fetch_add(1, Relaxed),
        };
        self.store.reset(policy, key)
    }

    delegate!(Store<Rule>, self => self.store; fits);
}
