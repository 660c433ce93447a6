//! A lock round the key, in the store.
//!
//! One request takes the lock and reads the state; another one writes the state and gives the lock
//! back. So a lock is held for a round trip. Calls wait for it in the order in which they came to
//! the store. A call that has waited until its deadline takes no lock.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use tokio::sync::oneshot;

use super::{architecture::Architecture, states::States, world::World};
use crate::{
    node::Arrival,
    timeline::{Instant, lock},
};

pub(super) struct Locked {
    world: Arc<World>,
    stored: Mutex<States>,
    /// Of each key.
    locks: Vec<Mutex<Lock>>,
}

#[derive(Default)]
struct Lock {
    is_held: bool,
    waiting: VecDeque<oneshot::Sender<()>>,
}

impl Locked {
    pub(super) fn new(world: &Arc<World>) -> Self {
        Self {
            world: Arc::clone(world),
            stored: world.states(),
            locks: (0..world.settings.keys())
                .map(|_| Mutex::default())
                .collect(),
        }
    }

    /// Waits for the lock of a key until the deadline. Returns `true` if it is held now.
    async fn take(&self, key: u64, deadline: Instant) -> bool {
        let granted = {
            let mut lock = lock(&self.locks[key as usize]);
            if !lock.is_held {
                lock.is_held = true;
                return true;
            }
            let (grant, granted) = oneshot::channel();
            lock.waiting.push_back(grant);
            granted
        };
        tokio::select! {
            biased;
            Ok(()) = granted => true,
            () = self.world.time.until(deadline) => false,
        }
    }

    fn give_back(&self, key: u64) {
        let mut lock = lock(&self.locks[key as usize]);
        while let Some(next) = lock.waiting.pop_front() {
            // It fails for a call that waits no more.
            if next.send(()).is_ok() {
                return;
            }
        }
        lock.is_held = false;
    }

    async fn decide(self: Arc<Self>, node: usize, arrival: Arrival) {
        let (world, key, deadline) = (&self.world, arrival.key, self.world.deadline(arrival));
        world.ask_store().await;
        if !self.take(key, deadline).await {
            world.answered(node, arrival, false, world.now(), deadline + 1);
            return;
        }
        let state = lock(&self.stored).get(key);
        world.answered_by_store().await;
        let decided = world.now();
        let mut own = States::new(&world.settings.rule, 1);
        own.set(0, state);
        // A call that has failed already spends nothing.
        let is_admitted = decided <= deadline && own.decide(0, decided);
        world.ask_store().await;
        lock(&self.stored).set(key, own.get(0));
        self.give_back(key);
        world.answered_by_store().await;
        world.answered(node, arrival, is_admitted, decided, world.now());
    }
}

impl Architecture for Locked {
    fn call(self: Arc<Self>, node: usize, arrival: Arrival) {
        tokio::spawn(self.decide(node, arrival));
    }
}
