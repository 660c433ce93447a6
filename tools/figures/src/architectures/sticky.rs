//! Sticky sessions: all calls of a key go to one node, which decides alone.
//!
//! In the middle of the run a node is added, and later it is taken away. A key that moves begins
//! with a full bucket on its new node. A node that a key leaves keeps its state.

use std::sync::{Arc, Mutex};

use super::{architecture::Architecture, states::States, world::World};
use crate::{faults::nanos, node::Arrival, random::Random, timeline::lock};

/// The balancer's choice of the node of a key.
#[derive(Clone, Copy)]
pub(super) enum Placement {
    /// The hash of the key modulo the number of nodes.
    Modulo,
    /// The node with the greatest hash of key and node.
    Rendezvous,
}

pub(super) struct Sticky {
    world: Arc<World>,
    nodes: Vec<Mutex<States>>,
    /// The node of each key, without the node that is added and with it.
    places: [Vec<usize>; 2],
}

impl Sticky {
    pub(super) fn new(world: &Arc<World>, placement: Placement) -> Self {
        let settings = &world.settings;
        let place = |key: u64, nodes: usize| match placement {
            Placement::Modulo => (Random::new(key, "key").next() % nodes as u64) as usize,
            Placement::Rendezvous => {
                let weight = |node: &usize| Random::new(key, &format!("node {node}")).next();
                (0..nodes).max_by_key(weight).unwrap_or(0)
            }
        };
        let places = |nodes| (0..settings.keys()).map(|key| place(key, nodes)).collect();
        Self {
            world: Arc::clone(world),
            nodes: (0..=settings.nodes).map(|_| world.states()).collect(),
            places: [places(settings.nodes), places(settings.nodes + 1)],
        }
    }
}

impl Architecture for Sticky {
    fn route(&self, arrival: Arrival) -> Option<usize> {
        let (added, removed) = self.world.settings.scaled;
        let is_larger = (nanos(added)..nanos(removed)).contains(&arrival.came);
        Some(self.places[usize::from(is_larger)][arrival.key as usize])
    }

    fn call(self: Arc<Self>, node: usize, arrival: Arrival) {
        let is_admitted = lock(&self.nodes[node]).decide(arrival.key, self.world.now());
        self.world.decided_here(node, arrival, is_admitted);
    }
}
