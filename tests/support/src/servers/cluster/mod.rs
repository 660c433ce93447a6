//! A cluster of three masters and three replicas.

mod migration;
mod seen;

use std::{thread, time::Duration};

pub use self::migration::Migration;
use super::{
    place::free_port,
    redis::{Redis, RedisOptions},
    resp::Reply,
    wait::{Turn, wait_until},
};

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;
const LIMIT: Duration = Duration::from_secs(60);
/// In milliseconds: a node that is silent for longer is suspected. Long enough for a busy machine,
/// on which all six may stall for a while.
const NODE_TIMEOUT: &str = "2000";

/// Six running servers, killed when dropped. A process runs one cluster or sentinel group at a
/// time: the next one waits for the drop.
#[derive(Debug)]
pub struct Cluster {
    /// The original masters first.
    nodes: Vec<Redis>,
    _turn: Turn,
}

impl Cluster {
    /// Starts a cluster of Redis. All nodes agree and all replicas are linked.
    pub fn start() -> Self {
        Self::start_of(Redis::options())
    }

    /// Starts a cluster of Valkey, or returns `None` if Valkey is missing.
    pub fn start_valkey() -> Option<Self> {
        Redis::options().valkey().map(Self::start_of)
    }

    /// Starts a cluster of nodes with these options.
    pub fn start_of(options: RedisOptions) -> Self {
        let turn = Turn::take();
        let options = options
            .set("cluster-enabled", "yes")
            .set("cluster-node-timeout", NODE_TIMEOUT)
            .set("cluster-announce-ip", "127.0.0.1")
            // A replica takes over however long it was disconnected, and keeps its master's slots.
            .set("cluster-replica-validity-factor", "0")
            .set("cluster-allow-replica-migration", "no");
        let start = || {
            // The port for connections between nodes. The default is 10000 above the other port,
            // which may be in use.
            let bus = |_: &_| vec!["--cluster-port".to_owned(), free_port().to_string()];
            options.clone().start_as(bus)
        };
        let nodes = thread::scope(|scope| {
            let starting: Vec<_> = (0..2 * MASTERS).map(|_| scope.spawn(start)).collect();
            let started = starting.into_iter().map(|node| node.join().unwrap());
            started.collect()
        });
        let cluster = Self { nodes, _turn: turn };
        cluster.form();
        cluster
    }

    fn form(&self) {
        let (masters, replicas) = self.nodes.split_at(MASTERS);
        for (at, master) in masters.iter().enumerate() {
            let first = (SLOTS * at / MASTERS).to_string();
            let last = (SLOTS * (at + 1) / MASTERS - 1).to_string();
            master.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
        }
        for (at, node) in self.nodes.iter().enumerate() {
            // Different for all nodes. Otherwise they would have to settle conflicts over slots.
            let epoch = (at + 1).to_string();
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
        }
        for node in &self.nodes[1..] {
            let seen = seen::itself(node);
            let (port, bus) = (seen.port.to_string(), seen.bus.to_string());
            self.nodes[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        for (master, replica) in masters.iter().zip(replicas) {
            let id = seen::itself(master).id;
            wait_until("a replica may join its master", LIMIT, || {
                match replica.ask(&["CLUSTER", "REPLICATE", &id]) {
                    Ok(Reply::Status(_)) => Ok(()),
                    // The replica does not know its master yet.
                    other => Err(format!("{other:?}")),
                }
            });
        }
        self.settle();
    }

    /// Returns all nodes, including killed ones.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// Returns the URL of the first node.
    pub fn url(&self) -> String {
        self.nodes[0].url()
    }

    /// Returns the URLs of all nodes, including killed ones.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }

    /// Returns the processor time of all running processes since their starts, in steps of 10 ms.
    pub fn cpu_time(&self) -> Duration {
        self.running().map(|node| node.cpu_time()).sum()
    }

    fn running(&self) -> impl Iterator<Item = &Redis> {
        self.nodes.iter().filter(|node| node.is_running())
    }

    /// Waits until all running nodes consider the cluster healthy and agree on the owners of the
    /// slots, and the replicas are linked. No node may be paused.
    pub fn settle(&self) {
        wait_until("a settled cluster", LIMIT, || self.is_settled());
    }

    fn is_settled(&self) -> Result<(), String> {
        seen::is_settled(&self.nodes, MASTERS)
    }

    /// Returns the slot of a key.
    pub fn slot_of(&self, key: impl AsRef<[u8]>) -> u16 {
        let node = self.running().next().expect("a node runs");
        let slot = node.command(&[&b"CLUSTER"[..], b"KEYSLOT", key.as_ref()]);
        slot.parse().unwrap()
    }

    /// Returns the master of `slot`, which must be below 16384. No node may be paused.
    pub fn master_of(&self, slot: u16) -> &Redis {
        wait_until("a master of the slot", LIMIT, || self.find(slot))
    }

    fn find(&self, slot: u16) -> Result<&Redis, String> {
        let node = self.running().next().ok_or("no node runs")?;
        let seen = seen::by(node)?;
        let owner = seen.iter().find(|seen| seen.owns(slot));
        let owner =
            owner.and_then(|owner| self.nodes.iter().find(|node| node.port() == owner.port));
        owner.ok_or_else(|| format!("no node has slot {slot}: {seen:?}"))
    }

    /// Returns the other node of the pair that this node was started in: a master or its replica.
    pub fn partner_of(&self, node: &Redis) -> &Redis {
        let at = self.nodes.iter().position(|one| one.port() == node.port());
        let at = at.expect("a node of this cluster");
        &self.nodes[(at + MASTERS) % (2 * MASTERS)]
    }

    /// Waits until a node is a master with slots in its own view. Other nodes may be paused.
    pub fn wait_for_master(&self, node: &Redis) {
        wait_until("a replica in its master's place", LIMIT, || {
            let seen = seen::by(node)?;
            let itself = seen.iter().find(|seen| seen.port == node.port());
            match itself {
                Some(itself) if !itself.slots.is_empty() => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    }

    /// Makes a planned failover to the replica of a master (`CLUSTER FAILOVER`). No write is lost,
    /// and the master continues as a replica. Returns the new master.
    pub fn hand_over(&self, master: &Redis) -> &Redis {
        let replica = self.partner_of(master);
        replica.command(&["CLUSTER", "FAILOVER"]);
        self.wait_for_master(replica);
        self.settle();
        replica
    }

    /// Kills `master` and waits until its replica has taken over. Returns the replica.
    ///
    /// The latest writes may be lost, unless `WAIT` has confirmed them.
    ///
    /// # Panics
    ///
    /// If the node is not a master with slots.
    pub fn failover(&self, master: &Redis) -> &Redis {
        let slots = seen::itself(master).slots;
        let slot = slots
            .first()
            .expect("only a master with slots can fail over");
        master.kill();
        self.settle();
        self.master_of(*slot.start())
    }
}
