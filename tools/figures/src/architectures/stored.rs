//! Nodes that decide by the real leases, on a central store.
//!
//! Without leases a node asks the store for each call.

use std::{sync::Arc, time::Duration};

use tollgate::store::LeaseConfig;

use super::{architecture::Architecture, central_store::CentralStore, world::World};
use crate::{
    node::{Arrival, Node},
    node_clock::NodeClock,
    random::Random,
};

pub(super) struct Stored {
    world: Arc<World>,
    store: CentralStore,
    nodes: Vec<Arc<Node>>,
    has_leases: bool,
}

impl Stored {
    /// The store decides each call.
    pub(super) fn central(world: &Arc<World>) -> Self {
        Self::new(world, Some(Duration::ZERO))
    }

    /// Nodes hold leases, for as long as is usual for the rule.
    pub(super) fn leased(world: &Arc<World>) -> Self {
        Self::new(world, None)
    }

    fn new(world: &Arc<World>, hold: Option<Duration>) -> Self {
        let settings = &world.settings;
        let store = CentralStore::new(world);
        let mut random = Random::new(settings.seed, "nodes");
        let node = |node| {
            let clock = NodeClock::exact(&world.time);
            let config = LeaseConfig::new().clock(clock).seed(random.next());
            let config = match hold {
                Some(hold) => config.duration(hold),
                None => config,
            };
            Arc::new(Node::new(
                &settings.rule,
                config,
                store.remote(node),
                &world.record,
            ))
        };
        Self {
            world: Arc::clone(world),
            nodes: (0..settings.nodes).map(node).collect(),
            store,
            has_leases: hold.is_none(),
        }
    }
}

impl Architecture for Stored {
    fn call(self: Arc<Self>, node: usize, arrival: Arrival) {
        self.nodes[node].serve(arrival);
    }

    fn needs_timers(&self) -> bool {
        self.has_leases
    }

    fn finish(&self) {
        self.store.count_calls(&self.world);
    }
}
