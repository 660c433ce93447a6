//! Sends commands to the right node of a cluster.

use std::{
    collections::HashSet,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{Client, Cmd, ErrorKind, RedisError, RedisResult, Value};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};

use super::{
    error::{connect_error, store_error},
    next_ready::next_ready,
    query::{Query, Reply},
    server::{HostPort, Server, ServerLocation, connection_config, with_address},
    shared_connection::SharedConnection,
    slot_map::{Node, SlotMap, Slots},
    topology::{Topology, TopologyVotes, redirection},
};
use crate::store::{Error, engine::SingleFlight};

/// Limit of redirections per call: the slot has moved, is migrating, or has no master yet.
const MAX_REDIRECTIONS: u32 = 4;
/// Pause before a call that no node accepted is sent again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// A cluster, with its own connection to each node, so that a node that is silent or down does not delay calls to others.
pub(super) struct Cluster {
    /// The nodes in the URL. Their login and TLS settings are used for all nodes.
    seeds: Vec<(HostPort, Client)>,
    response_timeout: Duration,
    slot_map: Mutex<SlotMap>,
    surveys: SingleFlight,
    /// `true` during a renewal and for `response_timeout` after it.
    is_renewing: AtomicBool,
}

impl Cluster {
    /// Creates a cluster that is connected to with the first call. `seeds` must not be empty.
    pub(super) fn new(seeds: Vec<(HostPort, Client)>, response_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            seeds,
            response_timeout,
            slot_map: Mutex::default(),
            surveys: SingleFlight::default(),
            is_renewing: AtomicBool::new(false),
        })
    }

    /// Locks the slot map, for a few instructions and never across an `.await`.
    fn slot_map(&self) -> MutexGuard<'_, SlotMap> {
        self.slot_map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the shard of a slot; 0 before the first survey.
    pub(super) fn shard(&self, slot: u16) -> u32 {
        self.slot_map().find(slot).map_or(0, |slots| slots.shard)
    }

    /// Checks that there is a cluster, and that one of its masters can run the programs.
    pub(super) async fn check(self: &Arc<Self>) -> Result<(), Error> {
        self.ensure_surveyed().await?;
        let masters: Vec<_> = {
            let slot_map = self.slot_map();
            let masters = slot_map.slots.iter();
            masters
                .map(|slots| slots.master.connection.clone())
                .collect()
        };
        let mut connecting: Vec<_> = masters
            .iter()
            .map(|master| Box::pin(master.get()))
            .collect();
        let mut last_error = None;
        while let Some(connected) = next_ready(&mut connecting).await {
            match connected {
                Ok(_) => return Ok(()),
                Err(error) => last_error = Some(error),
            }
        }
        last_error.map_or(Ok(()), Err)
    }

    /// Sends a command to the node that has the slot, and follows redirections.
    ///
    /// # Errors
    ///
    /// See [`SharedConnection::query`].
    pub(super) async fn query(
        self: &Arc<Self>,
        slot: u16,
        command: Arc<Cmd>,
    ) -> Result<Reply, Error> {
        let node = self.node_of(slot).await?;
        let query = Query::new(command);
        let reply = node.connection.query(query.clone()).await?;
        match &reply {
            Err(error) if is_misdirected(error) => {
                let redirected = Box::pin(self.redirect(slot, query, node, reply));
                let limit = self.response_timeout.saturating_mul(2);
                timeout(limit, redirected)
                    .await
                    .unwrap_or_else(|_| Err(Error::timeout()))
            }
            _ => Ok(reply),
        }
    }

    /// Follows redirections until a node accepts the call.
    async fn redirect(
        self: &Arc<Self>,
        slot: u16,
        mut query: Query,
        mut node: Node,
        mut reply: Reply,
    ) -> Result<Reply, Error> {
        for attempt in 0..MAX_REDIRECTIONS {
            let Err(error) = &reply else {
                break;
            };
            if !is_misdirected(error) {
                break;
            }
            if query.asking && error.code() == Some("TRYAGAIN") {
                // The node that had the slot has none of the keys, and this one not all: they are new. It makes several only if
                // one alone is declared.
                query.declares_one = true;
                reply = node.connection.query(query.clone()).await?;
                continue;
            }
            query.asking = error.code() == Some("ASK");
            if !query.asking {
                self.renew();
            }
            node = match redirection(error, &node.host) {
                Some(address) => self.node_at(address)?,
                None => {
                    sleep(FIRST_PAUSE * 2_u32.pow(attempt)).await;
                    self.node_of(slot).await?
                }
            };
            reply = node.connection.query(query.clone()).await?;
        }
        Ok(reply)
    }

    async fn node_of(self: &Arc<Self>, slot: u16) -> Result<Node, Error> {
        let node = || {
            let slot_map = self.slot_map();
            slot_map.find(slot).map(|slots| slots.master.clone())
        };
        if let Some(node) = node() {
            return Ok(node);
        }
        if self.ensure_surveyed().await? {
            // The slot map was known, but lacks this slot.
            self.renew();
        }
        node().ok_or_else(|| {
            Error::unavailable(format!(
                "no node of the cluster has slot {slot}: expected a master for all 16384; check `CLUSTER SLOTS`"
            ))
        })
    }

    /// Returns the node at an address; adds it to the known nodes.
    fn node_at(self: &Arc<Self>, address: HostPort) -> Result<Node, Error> {
        if let Some(node) = self.slot_map().nodes.get(&address) {
            return Ok(node.clone());
        }
        let client = self.client(&address).map_err(store_error)?;
        let server = Server {
            location: ServerLocation::Address(Box::new(client)),
            response_timeout: self.response_timeout,
        };
        let cluster = Arc::downgrade(self);
        let on_loss = move || {
            if let Some(cluster) = cluster.upgrade() {
                cluster.renew();
            }
        };
        let node = Node {
            host: address.0.as_str().into(),
            connection: SharedConnection::new(server, Box::new(on_loss)),
        };
        let nodes = &mut self.slot_map().nodes;
        Ok(nodes.entry(address).or_insert(node).clone())
    }

    fn client(&self, address: &HostPort) -> RedisResult<Client> {
        let seed = self.seeds.iter().find(|(seed, _)| seed == address);
        match (seed, self.seeds.first()) {
            (Some((_, client)), _) => Ok(client.clone()),
            (None, Some((_, any))) => with_address(any, address.clone()),
            (None, None) => Err((ErrorKind::InvalidClientConfig, NO_SEED).into()),
        }
    }

    /// Fetches the slot map unless it is known; returns `true` if it was.
    async fn ensure_surveyed(self: &Arc<Self>) -> Result<bool, Error> {
        let existing = || (!self.slot_map().slots.is_empty()).then_some(());
        if existing().is_some() {
            return Ok(true);
        }
        let cluster = Arc::clone(self);
        let survey = async move { cluster.survey().await };
        Box::pin(self.surveys.get_or_try_init(existing, survey)).await?;
        Ok(false)
    }

    /// Fetches the slot map again in the background, after a connection was lost or a node redirected a call. Meanwhile calls use
    /// the known one.
    ///
    /// One renewal runs at a time, and the next one not before `response_timeout` after it. Only calls start renewals.
    pub(super) fn renew(self: &Arc<Self>) {
        /// Marks the renewal as ended, even if its runtime shuts down.
        struct Renewal(Arc<Cluster>);
        impl Drop for Renewal {
            fn drop(&mut self) {
                self.0.is_renewing.store(false, Ordering::Release);
            }
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if self.is_renewing.swap(true, Ordering::AcqRel) {
            return;
        }
        let renewal = Renewal(Arc::clone(self));
        runtime.spawn(async move {
            // If it fails, the known slot map stays; the next call that fails starts another renewal.
            let _ = renewal.0.survey().await;
            sleep(renewal.0.response_timeout).await;
        });
    }

    /// Fetches the slot map from all known nodes concurrently. Ends as soon as half of them agree, so a silent node causes no
    /// delay.
    async fn survey(self: &Arc<Self>) -> Result<(), Error> {
        let mut addresses: Vec<HostPort> = self.slot_map().nodes.keys().cloned().collect();
        for (seed, _) in &self.seeds {
            if !addresses.contains(seed) {
                addresses.push(seed.clone());
            }
        }
        let mut asked: Vec<_> = addresses
            .iter()
            .map(|address| Box::pin(self.topology_from(address)))
            .collect();
        let mut votes = TopologyVotes::default();
        let mut last_error = None;
        while let Some(topology) = next_ready(&mut asked).await {
            match topology {
                Ok(topology) => {
                    if 2 * votes.add(topology) >= addresses.len() {
                        break;
                    }
                }
                // The answer of one node explains more than the silence of another.
                Err(error) if last_error.is_none() || !error.is_io_error() => {
                    last_error = Some(error);
                }
                Err(_) => {}
            }
        }
        match (votes.most_frequent(), last_error) {
            (Some(topology), _) => self.apply(&topology),
            (None, Some(error)) => Err(connect_error(error, EXPECTED)),
            (None, None) => Err(Error::other(NO_SEED)),
        }
    }

    /// Fetches the slot map from one node, over a new connection: the shared one may be broken.
    async fn topology_from(&self, address: &HostPort) -> RedisResult<Topology> {
        let asking = async {
            let client = self.client(address)?;
            let config = connection_config(self.response_timeout);
            let connecting = client.get_multiplexed_async_connection_with_config(&config);
            let mut connection = connecting.await?;
            let slots: Value = redis::cmd("CLUSTER")
                .arg("SLOTS")
                .query_async(&mut connection)
                .await?;
            Topology::parse(&slots, &address.0)
        };
        let fetched = timeout(self.response_timeout.saturating_mul(2), asking).await;
        fetched.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }

    /// Replaces the slot map, and drops nodes that are not in it, with their connections.
    fn apply(self: &Arc<Self>, topology: &Topology) -> Result<(), Error> {
        let mut slots = Vec::with_capacity(topology.ranges.len());
        for range in &topology.ranges {
            slots.push(Slots {
                first: range.first,
                last: range.last,
                shard: topology.shard(&range.master),
                master: self.node_at(range.master.clone())?,
            });
        }
        // Replicas are surveyed too, because their masters may be down.
        for replica in &topology.replicas {
            self.node_at(replica.clone())?;
        }
        let dropped: Vec<Node>;
        {
            let masters = topology.ranges.iter().map(|range| &range.master);
            let known: HashSet<_> = masters.chain(&topology.replicas).collect();
            let slot_map = &mut *self.slot_map();
            slot_map.slots = slots;
            let unknown = slot_map
                .nodes
                .extract_if(|address, _| !known.contains(address));
            dropped = unknown.map(|(_, node)| node).collect();
        }
        // Outside of the lock.
        drop(dropped);
        Ok(())
    }
}

const EXPECTED: &str = "a cluster at one of the nodes in the URL";
const NO_SEED: &str = "the URL of the cluster names no node: expected `redis-cluster://host:7000`";

/// Returns `true` if the call must be sent to another node, or again later.
fn is_misdirected(error: &RedisError) -> bool {
    matches!(
        error.code(),
        Some("MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN")
    )
}
