//! A cluster: its slots and nodes, and the redirections of calls.
//!
//! The cluster client of `redis` 1.8.1 retries a silent node after a timeout, so a silent master is
//! never left, and it stops all requests while it asks for the slots. This one asks all nodes at
//! once, and follows the answer that half of the nodes give.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use redis::{Client, Cmd, ErrorKind, RedisError, RedisResult, Value};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};

use super::{
    error::{connect_error, store_error},
    server::{
        HostPort, Query, RedisServer, Reply, ServerLocation, SharedConnection, connection_config,
        next_ready, with_address,
    },
};
use crate::{
    locks::lock,
    store::{StoreError, engine::SingleFlight},
    time::{Clock, LeaseClock, Timestamp},
};

/// Limit of redirections per call: the slot has moved, is migrating, or has no master yet.
const MAX_REDIRECTIONS: u32 = 4;
/// Pause before a call that no node accepted is sent again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// A cluster, with its own connection to each node, so that a node that is silent or down does not
/// delay calls to others.
pub(super) struct Cluster {
    /// The nodes in the URL. Their login and TLS settings are used for all nodes.
    seeds: Vec<(HostPort, Client)>,
    response_timeout: Duration,
    slot_map: Mutex<SlotMap>,
    surveys: SingleFlight,
    /// The instant before which no renewal begins, by [`LeaseClock`].
    next_renewal: Mutex<Timestamp>,
}

impl Cluster {
    /// Creates a cluster that is connected to with the first call. `seeds` must not be empty.
    pub(super) fn new(seeds: Vec<(HostPort, Client)>, response_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            seeds,
            response_timeout,
            slot_map: Mutex::default(),
            surveys: SingleFlight::new(response_timeout),
            next_renewal: Mutex::default(),
        })
    }

    /// Locks the slot map, for a few instructions and never across an `.await`.
    fn slot_map(&self) -> MutexGuard<'_, SlotMap> {
        lock(&self.slot_map)
    }

    /// Returns the shard of a slot; 0 before the first survey.
    pub(super) fn shard(&self, slot: u16) -> u32 {
        self.slot_map().find(slot).map_or(0, |slots| slots.shard)
    }

    /// Checks that there is a cluster, and that one of its masters can run the programs.
    pub(super) async fn check(self: &Arc<Self>) -> Result<(), StoreError> {
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
    ) -> Result<Reply, StoreError> {
        let node = self.node_of(slot).await?;
        let query = Query::new(command);
        let reply = node.connection.query(query.clone()).await?;
        match &reply {
            Err(error) if is_misdirected(error) => {
                let redirected = Box::pin(self.redirect(slot, query, node, reply));
                let limit = self.response_timeout.saturating_mul(2);
                timeout(limit, redirected)
                    .await
                    .unwrap_or_else(|_| Err(StoreError::timeout()))
            }
            _ => Ok(reply),
        }
    }

    /// Follows redirections until a node accepts the call.
    async fn redirect(
        self: &Arc<Self>,
        slot: u16,
        mut query: Query,
        mut node: ClusterNode,
        mut reply: Reply,
    ) -> Result<Reply, StoreError> {
        for attempt in 0..MAX_REDIRECTIONS {
            let Err(error) = &reply else {
                break;
            };
            if !is_misdirected(error) {
                break;
            }
            if query.asking && error.code() == Some("TRYAGAIN") {
                // The old node has none of the keys, since Redis 7.0.3, and this one lacks some:
                // those are new. While a slot migrates, a node creates several keys only if the
                // script declares a single one.
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

    async fn node_of(self: &Arc<Self>, slot: u16) -> Result<ClusterNode, StoreError> {
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
            StoreError::unavailable(format!(
                "no node of the cluster has slot {slot}: expected a master for all 16384; check `CLUSTER SLOTS`"
            ))
        })
    }

    /// Returns the node at an address; adds it to the known nodes.
    fn node_at(self: &Arc<Self>, address: HostPort) -> Result<ClusterNode, StoreError> {
        if let Some(node) = self.slot_map().nodes.get(&address) {
            return Ok(node.clone());
        }
        let client = self.client(&address).map_err(store_error)?;
        let server = RedisServer {
            location: ServerLocation::Address(Box::new(client)),
            response_timeout: self.response_timeout,
        };
        let cluster = Arc::downgrade(self);
        let on_loss = move || {
            if let Some(cluster) = cluster.upgrade() {
                cluster.renew();
            }
        };
        let node = ClusterNode {
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
    async fn ensure_surveyed(self: &Arc<Self>) -> Result<bool, StoreError> {
        let existing = || (!self.slot_map().slots.is_empty()).then_some(());
        if existing().is_some() {
            return Ok(true);
        }
        let cluster = Arc::clone(self);
        let survey = async move { cluster.survey().await };
        Box::pin(self.surveys.get_or_try_init(existing, survey)).await?;
        Ok(false)
    }

    /// Fetches the slot map again in the background, after a connection was lost or a node
    /// redirected a call. Meanwhile calls use the known one.
    ///
    /// The next one begins `response_timeout` after the end of a renewal at the soonest. A renewal
    /// takes twice that time, or it is on a runtime that nobody drives, and holds up no other. Only
    /// calls start renewals.
    pub(super) fn renew(self: &Arc<Self>) {
        /// Marks the renewal as ended, even if its runtime shuts down.
        struct Renewal(Arc<Cluster>);
        impl Drop for Renewal {
            fn drop(&mut self) {
                *lock(&self.0.next_renewal) = self.0.after(1);
            }
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        {
            let mut next = lock(&self.next_renewal);
            if LeaseClock.now() < *next {
                return;
            }
            *next = self.after(4);
        }
        let renewal = Renewal(Arc::clone(self));
        runtime.spawn(async move {
            // If it fails, the known slot map stays; the next call that fails starts another
            // renewal.
            let _ = renewal.0.survey().await;
        });
    }

    /// Returns the instant after so many response timeouts.
    fn after(&self, times: u32) -> Timestamp {
        LeaseClock
            .now()
            .saturating_add(self.response_timeout.saturating_mul(times))
    }

    /// Fetches the slot map from all known nodes concurrently. Ends as soon as half of them agree,
    /// so a silent node causes no delay.
    async fn survey(self: &Arc<Self>) -> Result<(), StoreError> {
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
            (None, None) => Err(StoreError::other(NO_SEED)),
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
    fn apply(self: &Arc<Self>, topology: &Topology) -> Result<(), StoreError> {
        let mut slots = Vec::with_capacity(topology.ranges.len());
        for range in &topology.ranges {
            slots.push(MappedSlots {
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
        let dropped: Vec<ClusterNode>;
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

/// A node of a cluster, with the connection to it.
#[derive(Clone)]
struct ClusterNode {
    host: Arc<str>,
    connection: Arc<SharedConnection>,
}

/// Consecutive slots with one master.
struct MappedSlots {
    first: u16,
    last: u16,
    shard: u32,
    master: ClusterNode,
}

/// The last known slots and nodes.
#[derive(Default)]
struct SlotMap {
    /// In ascending order; empty before the first survey.
    slots: Vec<MappedSlots>,
    /// By address; includes nodes that calls were redirected to.
    nodes: HashMap<HostPort, ClusterNode>,
}

impl SlotMap {
    /// Returns the entry that contains a slot.
    fn find(&self, slot: u16) -> Option<&MappedSlots> {
        let after = self.slots.partition_point(|slots| slots.first <= slot);
        let slots = self.slots.get(after.checked_sub(1)?)?;
        (slot <= slots.last).then_some(slots)
    }
}

/// A range of slots and its master.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SlotRange {
    first: u16,
    last: u16,
    master: HostPort,
}

/// The reply of one node to `CLUSTER SLOTS`.
#[derive(Clone, Debug)]
struct Topology {
    /// In ascending order.
    ranges: Vec<SlotRange>,
    replicas: Vec<HostPort>,
}

impl Topology {
    /// Parses the reply of the node at `host`.
    ///
    /// # Errors
    ///
    /// When it contains no slots.
    fn parse(reply: &Value, host: &str) -> RedisResult<Self> {
        let mut topology = Self {
            ranges: Vec::new(),
            replicas: Vec::new(),
        };
        for entry in members(reply) {
            let [Value::Int(first), Value::Int(last), nodes @ ..] = members(entry) else {
                continue;
            };
            let (Ok(first), Ok(last)) = (u16::try_from(*first), u16::try_from(*last)) else {
                continue;
            };
            let mut nodes = nodes.iter().map(|node| node_address(node, host));
            if let Some(Some(master)) = nodes.next() {
                topology.ranges.push(SlotRange {
                    first,
                    last,
                    master,
                });
            }
            topology.replicas.extend(nodes.flatten());
        }
        if topology.ranges.is_empty() {
            return Err(RedisError::from((
                ErrorKind::ClusterConnectionNotFound,
                "the cluster has no slots: expected a master for each; assign them to its nodes with `redis-cli --cluster`",
            )));
        }
        topology.ranges.sort_by_key(|range| range.first);
        Ok(topology)
    }

    /// Returns the shard of a master: its lowest slot, which stays the same when a replica takes
    /// over.
    fn shard(&self, master: &HostPort) -> u32 {
        let first = self.ranges.iter().find(|range| range.master == *master);
        first.map_or(0, |range| u32::from(range.first))
    }
}

fn members(value: &Value) -> &[Value] {
    match value {
        Value::Array(members) => members,
        _ => &[],
    }
}

/// Parses a node: host, port, and more. An empty host means the node that was `asked`, and `?` an
/// unknown one.
fn node_address(node: &Value, asked: &str) -> Option<HostPort> {
    let [host, Value::Int(port), ..] = members(node) else {
        return None;
    };
    let host = match host {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
        Value::SimpleString(text) => text,
        Value::Nil => "",
        _ => return None,
    };
    let host = match host {
        "?" => return None,
        "" => asked,
        host => host,
    };
    Some((host.to_owned(), u16::try_from(*port).ok()?))
}

/// Returns the address in a `MOVED` or `ASK` error. Without a host, it is that of the node that was
/// `asked`.
fn redirection(error: &RedisError, asked: &str) -> Option<HostPort> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = if host.is_empty() { asked } else { host };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), port.parse().ok()?))
}

/// Counts equal answers of several nodes.
#[derive(Default)]
struct TopologyVotes {
    answers: Vec<(Topology, usize)>,
}

impl TopologyVotes {
    /// Counts an answer, and returns the number of nodes that gave the same one.
    fn add(&mut self, answer: Topology) -> usize {
        let same = |(other, _): &&mut (Topology, usize)| other.ranges == answer.ranges;
        if let Some((_, count)) = self.answers.iter_mut().find(same) {
            *count += 1;
            return *count;
        }
        self.answers.push((answer, 1));
        1
    }

    /// Returns the most frequent answer. A node that is partitioned from the others, or was just
    /// resumed, reports an old topology.
    fn most_frequent(self) -> Option<Topology> {
        let most = self.answers.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(topology, _)| topology)
    }
}

/// Returns the hash slot of a key, one of 16,384: the CRC-16/XMODEM of its hash tag, if it has one,
/// or of the whole key (Redis Cluster specification, "Hash tags").
pub(super) fn hash_slot(key: &[u8]) -> u16 {
    let tag = || {
        let open = key.iter().position(|byte| *byte == b'{')? + 1;
        let len = key[open..].iter().position(|byte| *byte == b'}')?;
        (len > 0).then(|| &key[open..open + len])
    };
    let crc = tag().unwrap_or(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            crc << 1 ^ if crc >> 15 == 1 { 0x1021 } else { 0 }
        })
    });
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: Value, port: i64) -> Value {
        let id = Value::BulkString(b"an id".to_vec());
        Value::Array(vec![host, Value::Int(port), id])
    }

    fn host(name: &str) -> Value {
        Value::BulkString(name.into())
    }

    fn slots(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
    }

    fn at(host: &str, port: u16) -> HostPort {
        (host.to_owned(), port)
    }

    #[test]
    fn masters_replicas_and_shards_are_parsed() {
        let answer = Value::Array(vec![
            slots(9000, 16_383, vec![node(host("::1"), 3), node(host("?"), 4)]),
            slots(0, 99, vec![node(Value::Nil, 1), node(host("two"), 2)]),
            slots(200, 299, vec![node(host(""), 1)]),
            slots(-1, 70_000, vec![node(host("one"), 1)]),
            slots(300, 399, vec![node(host("?"), 1)]),
            Value::Nil,
        ]);
        let read = Topology::parse(&answer, "asked").unwrap();
        let found: Vec<_> = read
            .ranges
            .iter()
            .map(|range| (range.first, range.last, range.master.clone()))
            .collect();
        let expected = [
            (0, 99, at("asked", 1)),
            (200, 299, at("asked", 1)),
            (9000, 16_383, at("::1", 3)),
        ];
        assert_eq!(found, expected);
        assert_eq!(read.replicas, [at("two", 2)]);
        assert_eq!(read.shard(&at("asked", 1)), 0);
        assert_eq!(read.shard(&at("::1", 3)), 9000);
        for nothing in [Value::Nil, Value::Array(Vec::new()), Value::Okay] {
            assert!(Topology::parse(&nothing, "asked").is_err());
        }
    }

    #[test]
    fn the_majority_wins() {
        let topology = |port| {
            let answer = Value::Array(vec![slots(0, 16_383, vec![node(host("one"), port)])]);
            Topology::parse(&answer, "asked").unwrap()
        };
        let mut votes = TopologyVotes::default();
        let counts = [2, 1, 1, 3, 1].map(|port| votes.add(topology(port)));
        assert_eq!(counts, [1, 1, 2, 1, 3]);
        let winner = votes.most_frequent().unwrap();
        assert_eq!(winner.ranges[0].master, at("one", 1));
        assert!(TopologyVotes::default().most_frequent().is_none());
    }

    #[test]
    fn redirections_name_a_node() {
        for (reply, expected) in [
            ("MOVED 3999 127.0.0.1:6381", Some(at("127.0.0.1", 6381))),
            ("MOVED 3999 :6381", Some(at("asked", 6381))),
            ("ASK 3999 ::1:6381", Some(at("::1", 6381))),
            ("ASK 3999 [::1]:6381", Some(at("::1", 6381))),
            ("MOVED 3999 host:none", None),
            ("MOVED 3999", None),
            ("ERR 3999 host:1", None),
        ] {
            let error = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes());
            let error = error.unwrap().extract_error().unwrap_err();
            assert_eq!(redirection(&error, "asked"), expected, "{reply}");
        }
    }

    #[test]
    fn slots_follow_the_specification() {
        // The reference value of CRC-16/XMODEM.
        assert_eq!(hash_slot(b"123456789"), 0x31c3);
        assert_eq!(hash_slot(b"a:{123456789}:b"), hash_slot(b"{123456789}"));
        assert_eq!(hash_slot(b"a:{123456789}:b"), 0x31c3);
    }
}
