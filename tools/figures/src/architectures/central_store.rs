//! The central store behind the network.

use std::sync::Arc;

use super::{transport::Transport, world::World};
use crate::{
    faults::Faults,
    network::{Link, Network},
    remote_store::RemoteStore,
    server::Server,
};

pub(super) struct CentralStore {
    network: Arc<Network>,
    server: Arc<Server>,
}

impl CentralStore {
    pub(super) fn new(world: &World) -> Self {
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
        Self {
            network: Arc::new(network),
            server: Arc::new(Server::new(&world.time)),
        }
    }

    /// Returns the store as a node sees it.
    pub(super) fn remote(&self, node: usize) -> RemoteStore {
        RemoteStore {
            node,
            server: Arc::clone(&self.server),
            network: Arc::clone(&self.network),
        }
    }

    /// Counts the calls of all nodes, each of which is two messages.
    pub(super) fn count_calls(&self, world: &World) {
        let calls = self.network.calls();
        let measured = |at: &&u64| world.is_measured(**at);
        let calls = calls.iter().flatten().filter(measured).count() as u64;
        world.count(calls, 2 * calls);
    }
}

impl Transport for CentralStore {
    type Store = RemoteStore;

    const IS_CURRENT: bool = true;

    fn store(self: &Arc<Self>, node: usize) -> RemoteStore {
        self.remote(node)
    }

    fn finish(&self, world: &World) {
        self.count_calls(world);
    }
}
