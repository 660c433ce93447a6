//! A cluster: one connection to each node, and which of them has a key.

use std::{
    collections::{HashMap, HashSet},
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
    failure,
    sentinel::next,
    shared::{Answer, Query, Shared},
    source::{Address, By, Server, at, config},
    topology::{Topology, Votes, redirection},
};
use crate::store::{Error, attempts::Attempts};

/// How often a call is sent on: its slot has moved, is on its way, or has no master yet.
const REDIRECTIONS: u32 = 4;
/// Before a call is sent again that no node took, the first time; doubled each time.
const PAUSE: Duration = Duration::from_millis(20);

/// A cluster, by some of its nodes.
///
/// Each node has a connection of its own, so that one that is silent or gone keeps no call to another waiting.
pub(super) struct Cluster {
    /// The nodes of the URL; how any other is reached.
    seeds: Vec<(Address, Client)>,
    response_timeout: Duration,
    current: Mutex<Current>,
    surveys: Attempts,
    /// Whether a renewal is under way, or was within the last `response_timeout`.
    is_renewing: AtomicBool,
}

#[derive(Default)]
struct Current {
    /// In ascending order; empty before the first survey.
    slots: Vec<Slots>,
    /// By address; those that calls were sent on to are among them.
    nodes: HashMap<Address, Node>,
}

/// Slots that follow each other.
struct Slots {
    first: u16,
    last: u16,
    shard: u32,
    master: Node,
}

#[derive(Clone)]
struct Node {
    host: Arc<str>,
    shared: Arc<Shared>,
}

impl Current {
    fn of(&self, slot: u16) -> Option<&Slots> {
        let behind = self.slots.partition_point(|slots| slots.first <= slot);
        let slots = self.slots.get(behind.checked_sub(1)?)?;
        (slot <= slots.last).then_some(slots)
    }
}

impl Cluster {
    /// Creates a cluster that is connected to with the first call. `seeds` must not be empty.
    pub(super) fn new(seeds: Vec<(Address, Client)>, response_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            seeds,
            response_timeout,
            current: Mutex::default(),
            surveys: Attempts::default(),
            is_renewing: AtomicBool::new(false),
        })
    }

    /// Held for some instructions, never while something is awaited.
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the shard of a slot; 0 before the first survey.
    pub(super) fn shard(&self, slot: u16) -> u32 {
        self.current().of(slot).map_or(0, |slots| slots.shard)
    }

    /// Checks that there is a cluster, and that one of its masters can run the programs.
    pub(super) async fn check(self: &Arc<Self>) -> Result<(), Error> {
        self.surveyed().await?;
        let masters: Vec<_> = {
            let current = self.current();
            let masters = current.slots.iter();
            masters.map(|slots| slots.master.shared.clone()).collect()
        };
        let mut connecting: Vec<_> = masters
            .iter()
            .map(|master| Box::pin(master.connected()))
            .collect();
        let mut why = None;
        while let Some(connected) = next(&mut connecting).await {
            match connected {
                Ok(_) => return Ok(()),
                Err(error) => why = Some(error),
            }
        }
        why.map_or(Ok(()), Err)
    }

    /// Sends a command to the node that has the slot, and follows redirections.
    ///
    /// # Errors
    ///
    /// As [`Shared::query`].
    pub(super) async fn query(
        self: &Arc<Self>,
        slot: u16,
        command: Arc<Cmd>,
    ) -> Result<Answer, Error> {
        let node = self.node_of(slot).await?;
        let is_asking = false;
        let query = Query { command, is_asking };
        let answer = node.shared.query(query.clone()).await?;
        match &answer {
            Err(error) if is_misdirected(error) => {
                let sent_on = Box::pin(self.send_on(slot, query, node, answer));
                let limit = self.response_timeout.saturating_mul(2);
                timeout(limit, sent_on)
                    .await
                    .unwrap_or_else(|_| Err(Error::timeout()))
            }
            _ => Ok(answer),
        }
    }

    async fn send_on(
        self: &Arc<Self>,
        slot: u16,
        mut query: Query,
        mut node: Node,
        mut answer: Answer,
    ) -> Result<Answer, Error> {
        for attempt in 0..REDIRECTIONS {
            let Err(error) = &answer else {
                break;
            };
            if !is_misdirected(error) {
                break;
            }
            query.is_asking = error.code() == Some("ASK");
            if !query.is_asking {
                self.renew();
            }
            node = match redirection(error, &node.host) {
                Some(address) => self.node_at(address)?,
                None => {
                    sleep(PAUSE * 2_u32.pow(attempt)).await;
                    self.node_of(slot).await?
                }
            };
            answer = node.shared.query(query.clone()).await?;
        }
        Ok(answer)
    }

    async fn node_of(self: &Arc<Self>, slot: u16) -> Result<Node, Error> {
        let node = || {
            let current = self.current();
            current.of(slot).map(|slots| slots.master.clone())
        };
        if let Some(node) = node() {
            return Ok(node);
        }
        if self.surveyed().await? {
            // There was a map, without that slot.
            self.renew();
        }
        node().ok_or_else(|| {
            Error::unavailable(format!(
                "no node of the cluster has slot {slot}: expected a master for all 16384; see `CLUSTER SLOTS`"
            ))
        })
    }

    /// Returns the node at an address, and remembers it.
    fn node_at(self: &Arc<Self>, address: Address) -> Result<Node, Error> {
        if let Some(node) = self.current().nodes.get(&address) {
            return Ok(node.clone());
        }
        let client = self.client(&address).map_err(failure::error)?;
        let server = Server {
            by: By::Address(Box::new(client)),
            response_timeout: self.response_timeout,
        };
        let cluster = Arc::downgrade(self);
        let on_loss = move || {
            if let Some(cluster) = cluster.upgrade() {
                cluster.renew();
            }
        };
        let made = Node {
            host: address.0.as_str().into(),
            shared: Shared::new(server, Box::new(on_loss)),
        };
        let nodes = &mut self.current().nodes;
        Ok(nodes.entry(address).or_insert(made).clone())
    }

    fn client(&self, address: &Address) -> RedisResult<Client> {
        let seed = self.seeds.iter().find(|(seed, _)| seed == address);
        match (seed, self.seeds.first()) {
            (Some((_, client)), _) => Ok(client.clone()),
            (None, Some((_, any))) => at(any, address.clone()),
            (None, None) => Err((ErrorKind::InvalidClientConfig, NO_SEED).into()),
        }
    }

    /// Fetches the slots unless they are known; returns whether they were.
    async fn surveyed(self: &Arc<Self>) -> Result<bool, Error> {
        let there = || (!self.current().slots.is_empty()).then_some(());
        if there().is_some() {
            return Ok(true);
        }
        let cluster = Arc::clone(self);
        let survey = async move { cluster.survey().await };
        Box::pin(self.surveys.get_or_init(there, survey)).await?;
        Ok(false)
    }

    /// Fetches the slots again in the background, after a connection was lost or a node redirected a call. Calls use the known
    /// slots meanwhile.
    ///
    /// One renewal at a time, and no other for `response_timeout` after it. Only calls begin one, so it ends when nobody calls.
    pub(super) fn renew(self: &Arc<Self>) {
        /// Ends the renewal, also when its runtime ends before.
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
            // Without an answer, what is known stays; the next call that fails asks again.
            let _ = renewal.0.survey().await;
            sleep(renewal.0.response_timeout).await;
        });
    }

    /// Fetches the slots from all known nodes at once. Ends as soon as half of them agree, so a silent node causes no delay.
    async fn survey(self: &Arc<Self>) -> Result<(), Error> {
        let mut addresses: Vec<Address> = self.current().nodes.keys().cloned().collect();
        for (seed, _) in &self.seeds {
            if !addresses.contains(seed) {
                addresses.push(seed.clone());
            }
        }
        let mut asked: Vec<_> = addresses
            .iter()
            .map(|address| Box::pin(self.topology_by(address)))
            .collect();
        let mut votes = Votes::default();
        let mut why = None;
        while let Some(answer) = next(&mut asked).await {
            match answer {
                Ok(topology) => {
                    if 2 * votes.add(topology) >= addresses.len() {
                        break;
                    }
                }
                // What a node says tells more than that another one says nothing.
                Err(error) if why.is_none() || !error.is_io_error() => why = Some(error),
                Err(_) => {}
            }
        }
        match (votes.believed(), why) {
            (Some(topology), _) => self.follow(&topology),
            (None, Some(why)) => Err(failure::connecting(why, PLACE)),
            (None, None) => Err(Error::other(NO_SEED)),
        }
    }

    /// Fetches the slots from one node, over a new connection: the one that calls share may be broken.
    async fn topology_by(&self, address: &Address) -> RedisResult<Topology> {
        let asking = async {
            let client = self.client(address)?;
            let config = config(self.response_timeout);
            let connecting = client.get_multiplexed_async_connection_with_config(&config);
            let mut connection = connecting.await?;
            let slots: Value = redis::cmd("CLUSTER")
                .arg("SLOTS")
                .query_async(&mut connection)
                .await?;
            Topology::read(&slots, &address.0)
        };
        let told = timeout(self.response_timeout.saturating_mul(2), asking).await;
        told.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }

    /// Routes calls by a topology from now on, and drops nodes that are not in it, with their connections.
    fn follow(self: &Arc<Self>, topology: &Topology) -> Result<(), Error> {
        let mut slots = Vec::with_capacity(topology.ranges.len());
        for range in &topology.ranges {
            slots.push(Slots {
                first: range.first,
                last: range.last,
                shard: topology.shard(&range.master),
                master: self.node_at(range.master.clone())?,
            });
        }
        // They are asked when their masters are gone.
        for replica in &topology.replicas {
            self.node_at(replica.clone())?;
        }
        let forgotten: Vec<Node>;
        {
            let masters = topology.ranges.iter().map(|range| &range.master);
            let known: HashSet<_> = masters.chain(&topology.replicas).collect();
            let current = &mut *self.current();
            current.slots = slots;
            let gone = current
                .nodes
                .extract_if(|address, _| !known.contains(address));
            forgotten = gone.map(|(_, node)| node).collect();
        }
        // Outside of the lock.
        drop(forgotten);
        Ok(())
    }
}

const PLACE: &str = "a cluster by one of the nodes in the URL";
const NO_SEED: &str = "the URL of the cluster names no node: expected `redis-cluster://host:7000`";

/// Returns `true` if the call belongs at another node, or must be sent again later.
fn is_misdirected(error: &RedisError) -> bool {
    matches!(
        error.code(),
        Some("MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN")
    )
}
