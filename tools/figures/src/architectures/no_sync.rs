//! No synchronization: each node has the whole limit for itself.

use std::sync::{Arc, Mutex};

use super::{architecture::Architecture, states::States, world::World};
use crate::{node::Arrival, timeline::lock};

pub(super) struct NoSync {
    world: Arc<World>,
    nodes: Vec<Mutex<States>>,
}

impl NoSync {
    pub(super) fn new(world: &Arc<World>) -> Self {
        Self {
            world: Arc::clone(world),
            nodes: (0..world.settings.nodes).map(|_| world.states()).collect(),
        }
    }
}

impl Architecture for NoSync {
    fn call(self: Arc<Self>, node: usize, arrival: Arrival) {
        let is_admitted = lock(&self.nodes[node]).decide(arrival.key, self.world.now());
        self.world.decided_here(node, arrival, is_admitted);
    }
}
