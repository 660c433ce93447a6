//! The slot map of a cluster, as its nodes report it.

use redis::{ErrorKind, RedisError, RedisResult, Value};

use super::server::HostPort;

/// A range of slots and its master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) master: HostPort,
}

/// The reply of one node to `CLUSTER SLOTS`.
#[derive(Clone, Debug)]
pub(super) struct Topology {
    /// In ascending order.
    pub(super) ranges: Vec<SlotRange>,
    pub(super) replicas: Vec<HostPort>,
}

impl Topology {
    /// Parses the reply of the node at `host`.
    ///
    /// # Errors
    ///
    /// When it contains no slots.
    pub(super) fn parse(reply: &Value, host: &str) -> RedisResult<Self> {
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
            let mut nodes = nodes.iter().map(|node| address(node, host));
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

    /// Returns the shard of a master: its lowest slot, which stays the same when a replica takes over.
    pub(super) fn shard(&self, master: &HostPort) -> u32 {
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

/// Parses a node: host, port, and more. An empty host is that of the node that was asked, and `?` is an unknown one.
fn address(node: &Value, asked: &str) -> Option<HostPort> {
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

/// Returns the node that `MOVED` or `ASK` names; without a host, it is at the host that was `asked`.
pub(super) fn redirection(error: &RedisError, asked: &str) -> Option<HostPort> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = if host.is_empty() { asked } else { host };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), port.parse().ok()?))
}

/// Counts equal answers of several nodes.
#[derive(Default)]
pub(super) struct TopologyVotes {
    answers: Vec<(Topology, usize)>,
}

impl TopologyVotes {
    /// Counts an answer, and returns the number of nodes that gave the same one.
    pub(super) fn add(&mut self, answer: Topology) -> usize {
        let same = |(other, _): &&mut (Topology, usize)| other.ranges == answer.ranges;
        if let Some((_, count)) = self.answers.iter_mut().find(same) {
            *count += 1;
            return *count;
        }
        self.answers.push((answer, 1));
        1
    }

    /// Returns the most frequent answer. A node that is cut off, or was just resumed, reports an old topology.
    pub(super) fn most_frequent(self) -> Option<Topology> {
        let most = self.answers.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(topology, _)| topology)
    }
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
}
