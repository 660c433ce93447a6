//! The load balancers limit, before a call comes to a node.
//!
//! As HAProxy does with its peers, a balancer sends each entry that it has changed to all others,
//! which replace theirs: entries are not added up, the last one wins.

use std::sync::{Arc, Mutex};

use super::{architecture::Architecture, states::States, world::World};
use crate::{node::Arrival, timeline::lock};

pub(super) struct Balancers {
    world: Arc<World>,
    tables: Vec<Mutex<States>>,
}

impl Balancers {
    pub(super) fn new(world: &Arc<World>) -> Self {
        let balancers = world.settings.nodes.div_ceil(world.settings.per_balancer);
        Self {
            world: Arc::clone(world),
            tables: (0..balancers).map(|_| world.states()).collect(),
        }
    }
}

impl Architecture for Balancers {
    /// Nodes are chosen at random, so a node stands for its balancer.
    fn call(self: Arc<Self>, node: usize, arrival: Arrival) {
        let balancer = node % self.tables.len();
        let is_admitted = lock(&self.tables[balancer]).decide(arrival.key, self.world.now());
        self.world.decided_here(balancer, arrival, is_admitted);
        if !is_admitted || self.tables.len() == 1 {
            return;
        }
        let entry = lock(&self.tables[balancer]).get(arrival.key);
        tokio::spawn(async move {
            self.world.sent(self.tables.len() - 1);
            self.world.way().await;
            for (other, table) in self.tables.iter().enumerate() {
                if other != balancer {
                    self.world.work(other, self.world.settings.message);
                    lock(table).set(arrival.key, entry.clone());
                }
            }
        });
    }
}
