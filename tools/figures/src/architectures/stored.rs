//! Nodes that decide by a store wrapper of tollgate, on a central store.
//!
//! Wrappers are the real ones. Without leases a node asks the store for each call.

use std::{sync::Arc, time::Duration};

use tollgate::store::LeaseConfig;

use super::{architecture::Architecture, world::World};
use crate::{
    faults::Faults,
    network::{Link, Network},
    node::{Arrival, Node},
    node_clock::NodeClock,
    random::Random,
    remote_store::RemoteStore,
    server::Server,
};

pub(super) struct Stored {
    world: Arc<World>,
    network: Arc<Network>,
    nodes: Vec<Arc<Node>>,
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
        let link = Link {
            delay: settings.delay,
            jitter: settings.jitter,
            deadline: settings.deadline,
            service: settings.service,
            ..Link::default()
        };
        let network = Network::new(
            &world.time,
            &link,
            &Faults::default(),
            settings.nodes,
            settings.seed,
        );
        let (network, server) = (Arc::new(network), Arc::new(Server::new(&world.time)));
        let mut random = Random::new(settings.seed, "nodes");
        let node = |node| {
            let clock = NodeClock::exact(&world.time);
            let config = LeaseConfig::new().clock(clock).seed(random.next());
            let config = match hold {
                Some(hold) => config.hold(hold),
                None => config,
            };
            let store = RemoteStore {
                node,
                server: Arc::clone(&server),
                network: Arc::clone(&network),
            };
            Arc::new(Node::new(&settings.rule, config, store, &world.record))
        };
        Self {
            world: Arc::clone(world),
            nodes: (0..settings.nodes).map(node).collect(),
            network,
        }
    }
}

impl Architecture for Stored {
    fn call(self: Arc<Self>, node: usize, arrival: Arrival) {
        self.nodes[node].serve(arrival);
    }

    fn finish(&self) {
        let calls = self.network.calls();
        let measured = |at: &&u64| self.world.is_measured(**at);
        let calls = calls.iter().flatten().filter(measured).count() as u64;
        self.world.count(calls, 2 * calls);
    }
}
