//! The view that each node has of the cluster.

use std::{collections::BTreeMap, ops::RangeInclusive};

use super::super::redis::Redis;

/// A node in the view of another node or of itself: a line of `CLUSTER NODES`.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) id: String,
    pub(super) port: u16,
    pub(super) bus: u16,
    flags: Vec<String>,
    pub(super) slots: Vec<RangeInclusive<u16>>,
}

impl Seen {
    /// `id ip:port@bus[,name] flags master ping pong epoch link slots…`
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let id = words.next()?.to_owned();
        let address = words.next()?.split(',').next()?;
        let (port, bus) = address.rsplit_once(':')?.1.split_once('@')?;
        let flags = words.next()?.split(',').map(str::to_owned).collect();
        let slots = words
            .skip(5)
            // In brackets: slots in migration.
            .filter(|slots| !slots.starts_with('['))
            .map(|slots| {
                let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
                Some(first.parse().ok()?..=last.parse().ok()?)
            })
            .collect::<Option<_>>()?;
        Some(Self {
            id,
            port: port.parse().ok()?,
            bus: bus.parse().ok()?,
            flags,
            slots,
        })
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|found| found == flag)
    }

    fn is_well(&self) -> bool {
        let ill = ["handshake", "noaddr", "fail", "fail?"];
        !ill.iter().any(|flag| self.is(flag))
    }

    pub(super) fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|slots| slots.contains(&slot))
    }
}

/// Returns all nodes in the view of `node`.
pub(super) fn by(node: &Redis) -> Result<Vec<Seen>, String> {
    let text = text(node, &["CLUSTER", "NODES"])?;
    let lines = text.lines().map(Seen::parse).collect::<Option<_>>();
    lines.ok_or_else(|| format!("expected CLUSTER NODES, found: {text}"))
}

/// Returns a node in its own view.
///
/// # Panics
///
/// If the node does not answer.
pub(super) fn itself(node: &Redis) -> Seen {
    let seen = by(node).unwrap_or_else(|error| panic!("{:?}: {error}", **node));
    let seen = seen.into_iter().find(|seen| seen.is("myself"));
    seen.expect("a node knows itself")
}

/// Returns an error unless all running nodes consider the cluster healthy, know all others, agree
/// which `masters` of them have all slots, and the replicas are linked.
pub(super) fn is_settled(nodes: &[Redis], masters: usize) -> Result<(), String> {
    let running: Vec<_> = nodes.iter().filter(|node| node.is_running()).collect();
    // By port: whether it is a master, and its slots.
    let mut agreed = BTreeMap::new();
    for node in &running {
        let port = node.port();
        let info = text(node, &["CLUSTER", "INFO"])?;
        let replication = text(node, &["INFO", "replication"])?;
        if !info.contains("cluster_state:ok") || replication.contains("master_link_status:down") {
            return Err(format!("port {port}: {info}{replication}"));
        }
        let seen = by(node)?;
        let mut known = BTreeMap::new();
        for other in &running {
            let seen = seen.iter().find(|seen| seen.port == other.port());
            let Some(seen) = seen.filter(|seen| seen.is_well()) else {
                return Err(format!("port {port} sees {:?} as {seen:?}", ***other));
            };
            known.insert(seen.port, (seen.is("master"), seen.slots.clone()));
        }
        if agreed.is_empty() {
            agreed = known;
        } else if agreed != known {
            return Err(format!("port {port} sees {known:?}, others {agreed:?}"));
        }
    }
    let owners = agreed.values().filter(|(_, slots)| !slots.is_empty());
    if owners.clone().count() == masters && owners.clone().all(|(is_master, _)| *is_master) {
        Ok(())
    } else {
        Err(format!("expected slots at {masters} masters: {agreed:?}"))
    }
}

fn text(node: &Redis, command: &[&str]) -> Result<String, String> {
    let answer = node.ask(command).map_err(|error| error.to_string())?;
    Ok(answer.to_string())
}
