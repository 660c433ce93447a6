//! Get-then-set: a node reads the state, decides, and writes the new state without a condition.

use std::sync::{Arc, Mutex};

use super::{architecture::Architecture, states::States, world::World};
use crate::{node::Arrival, timeline::lock};

pub(super) struct GetThenSet {
    world: Arc<World>,
    stored: Mutex<States>,
}

impl GetThenSet {
    pub(super) fn new(world: &Arc<World>) -> Self {
        Self {
            world: Arc::clone(world),
            stored: world.states(),
        }
    }

    async fn decide(self: Arc<Self>, node: usize, arrival: Arrival) {
        let (world, key) = (&self.world, arrival.key);
        world.ask_store().await;
        let state = lock(&self.stored).get(key);
        world.answered_by_store().await;
        let decided = world.now();
        let mut own = States::new(&world.settings.rule, 1);
        own.set(0, state);
        let is_admitted = own.decide(0, decided);
        if is_admitted && decided <= world.deadline(arrival) {
            world.ask_store().await;
            lock(&self.stored).set(key, own.get(0));
            world.answered_by_store().await;
        }
        world.answered(node, arrival, is_admitted, decided, world.now());
    }
}

impl Architecture for GetThenSet {
    fn call(self: Arc<Self>, node: usize, arrival: Arrival) {
        tokio::spawn(self.decide(node, arrival));
    }
}
