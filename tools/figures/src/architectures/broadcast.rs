//! Chatty servers: each node sends what it has admitted to all others.
//!
//! A node that has admitted something sends it after a while, with all that it admits meanwhile.
//! The others charge it by force, even into debt. Each message takes time of the node that receives
//! it, and its own calls wait.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex},
};

use super::{architecture::Architecture, states::States, world::World};
use crate::{faults::nanos, node::Arrival, timeline::lock};

pub(super) struct Broadcast {
    world: Arc<World>,
    nodes: Vec<Mutex<States>>,
    /// The units that each node has admitted since its last message, by key.
    unsent: Vec<Mutex<BTreeMap<u64, u64>>>,
}

impl Broadcast {
    pub(super) fn new(world: &Arc<World>) -> Self {
        let nodes = world.settings.nodes;
        Self {
            world: Arc::clone(world),
            nodes: (0..nodes).map(|_| world.states()).collect(),
            unsent: (0..nodes).map(|_| Mutex::default()).collect(),
        }
    }

    async fn send(self: Arc<Self>, node: usize) {
        let world = &self.world;
        world.time.sleep(nanos(world.settings.broadcast)).await;
        let counts = mem::take(&mut *lock(&self.unsent[node]));
        world.sent(self.nodes.len() - 1);
        // One time for all receivers.
        world.way().await;
        for (other, states) in self.nodes.iter().enumerate() {
            if other == node {
                continue;
            }
            world.work(other, world.settings.message);
            let mut states = lock(states);
            for (key, units) in &counts {
                states.charge(*key, world.now(), *units);
            }
        }
    }
}

impl Architecture for Broadcast {
    fn call(self: Arc<Self>, node: usize, arrival: Arrival) {
        let is_admitted = lock(&self.nodes[node]).decide(arrival.key, self.world.now());
        self.world.decided_here(node, arrival, is_admitted);
        if !is_admitted || self.nodes.len() == 1 {
            return;
        }
        let is_first = {
            let mut unsent = lock(&self.unsent[node]);
            *unsent.entry(arrival.key).or_default() += 1;
            unsent.values().sum::<u64>() == 1
        };
        if is_first {
            tokio::spawn(self.send(node));
        }
    }
}
