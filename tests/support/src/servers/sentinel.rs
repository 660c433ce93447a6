//! A master and its replica, monitored by three sentinels.

use std::{fs, path::Path, time::Duration};

use super::{
    place::free_port,
    redis::{Redis, RedisOptions},
    resp::Reply,
    tls::Tls,
    wait::{Turn, wait_until},
};

const LIMIT: Duration = Duration::from_secs(60);
/// In milliseconds: a master that is silent for longer is suspected. Long enough for a busy
/// machine.
const DOWN_AFTER: &str = "1000";

/// Five running servers, killed when dropped. A process runs one cluster or sentinel group at a
/// time: the next one waits for the drop.
#[derive(Debug)]
pub struct Sentinel {
    nodes: [Redis; 2],
    /// The ports at which the sentinels reach the nodes.
    known: [u16; 2],
    sentinels: [Redis; 3],
    /// The ports at which the sentinels reach each other.
    ports: [u16; 3],
    _turn: Turn,
}

impl Sentinel {
    /// The name of the master in the sentinels.
    pub const MASTER: &str = "mymaster";

    /// Starts two nodes of Redis and three sentinels that know the nodes and each other.
    pub fn start() -> Self {
        Self::start_of(Redis::options(), RedisOptions::bare(), None)
    }

    /// Starts a group that communicates by TLS on ports of its own. The other ports are only for
    /// the tests. The sentinels require the password.
    pub fn start_by_tls(tls: &Tls, password: &str) -> Self {
        let sentinel = RedisOptions::bare().password(password);
        Self::start_of(Redis::options(), sentinel, Some(tls))
    }

    fn start_of(options: RedisOptions, sentinel: RedisOptions, tls: Option<&Tls>) -> Self {
        let turn = Turn::take();
        // Starts a server with its own arguments, and returns the port at which the others reach
        // it.
        let start = |options: RedisOptions, first: &dyn Fn(&Path) -> Vec<String>| {
            let tls = tls.map(|tls| Tls {
                port: free_port(),
                ..tls.clone()
            });
            let options = match &tls {
                Some(_) => options.set("tls-replication", "yes"),
                None => options,
            };
            let server = options.start_as(|folder| {
                let more = tls.iter().flat_map(|tls| tls.arguments(folder));
                first(folder).into_iter().chain(more).collect()
            });
            let port = tls.map_or(server.port(), |tls| tls.port);
            (server, port)
        };
        let options = options.set("repl-ping-replica-period", "1");
        let (master, watched) = start(options.clone(), &|_| Vec::new());
        let of_master = options.set("replicaof", &format!("127.0.0.1 {watched}"));
        let (replica, other) = start(of_master, &|_| Vec::new());
        replica.wait_for_info("replication", "master_link_status", "up", LIMIT);
        let sentinel = || {
            start(sentinel.clone(), &|folder| {
                let (name, conf) = (Self::MASTER, folder.join("sentinel.conf"));
                let text = format!(
                    "bind 127.0.0.1\n\
                     sentinel monitor {name} 127.0.0.1 {watched} 2\n\
                     sentinel down-after-milliseconds {name} {DOWN_AFTER}\n\
                     sentinel failover-timeout {name} 10000\n"
                );
                fs::write(&conf, text).unwrap();
                let conf = conf.to_str().expect("a path in UTF-8").to_owned();
                vec![conf, "--sentinel".to_owned()]
            })
        };
        let [one, two, three] = [sentinel(), sentinel(), sentinel()];
        let ports = [one.1, two.1, three.1];
        let sentinels = [one.0, two.0, three.0];
        // By default they announce themselves every two seconds, and inspect the nodes every ten.
        let often = [
            "SENTINEL",
            "DEBUG",
            "publish-period",
            "200",
            "info-period",
            "500",
        ];
        for sentinel in &sentinels {
            sentinel.command(&often);
        }
        let group = Self {
            nodes: [master, replica],
            known: [watched, other],
            sentinels,
            ports,
            _turn: turn,
        };
        group.settle();
        group
    }

    /// Returns both nodes, including a killed one. The first was the original master.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    pub fn sentinels(&self) -> &[Redis] {
        &self.sentinels
    }

    /// Returns the ports at which the sentinels reach each other: the TLS ports, if they use TLS.
    pub fn ports(&self) -> [u16; 3] {
        self.ports
    }

    /// Returns the URLs of the sentinels.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Redis::url).collect()
    }

    /// Returns a URL with all sentinels, at the ports for tests, and the master's name. It begins
    /// with `start`, such as `redis-sentinel://`.
    pub fn url(&self, start: &str) -> String {
        let addresses = self
            .sentinels
            .each_ref()
            .map(|sentinel| sentinel.address().to_string());
        format!("{start}{}/{}", addresses.join(","), Self::MASTER)
    }

    /// Waits until all running sentinels name one master, which considers itself the master, and
    /// know its replica and each other.
    pub fn settle(&self) {
        wait_until("settled sentinels", LIMIT, || self.look().map(drop));
    }

    /// Returns the master that all running sentinels name, once they are settled.
    pub fn master(&self) -> &Redis {
        wait_until("a master that all sentinels name", LIMIT, || self.look())
    }

    fn look(&self) -> Result<&Redis, String> {
        let mut named = None;
        for sentinel in self
            .sentinels
            .iter()
            .filter(|sentinel| sentinel.is_running())
        {
            let answer = sentinel.ask(&["SENTINEL", "MASTER", Self::MASTER]);
            let fields = answer.map_err(|error| error.to_string())?.into_members();
            let fields: Vec<_> = fields
                .iter()
                .map(|field| String::from_utf8_lossy(field))
                .collect();
            let field = |name: &str| {
                let pair = fields.chunks_exact(2).find(|pair| pair[0] == name);
                pair.map(|pair| pair[1].as_ref()).unwrap_or_default()
            };
            let known = [
                field("flags"),
                field("num-slaves"),
                field("num-other-sentinels"),
            ];
            if known != ["master", "1", "2"] {
                return Err(format!("port {}: {fields:?}", sentinel.port()));
            }
            let port = field("port").to_owned();
            if *named.get_or_insert(port.clone()) != port {
                return Err(format!("sentinels name {named:?} and {port}"));
            }
        }
        let named = named.ok_or("no sentinel runs")?;
        let at = self.known.iter().position(|port| port.to_string() == named);
        let at = at.ok_or_else(|| format!("a master at a strange port: {named}"))?;
        let master = &self.nodes[at];
        match master.ask(&["ROLE"]) {
            Ok(Reply::List(role)) if role.first().is_some_and(|is| is.to_string() == "master") => {
                Ok(master)
            }
            other => Err(format!("port {named} as a master: {other:?}")),
        }
    }

    /// Kills the master, and waits until all sentinels name the other node. Returns that node.
    ///
    /// The latest writes may be lost, unless `WAIT` has confirmed them.
    pub fn failover(&self) -> &Redis {
        let old = self.master();
        old.kill();
        wait_until("a successor of a killed master", LIMIT, || {
            match self.look()? {
                node if node.port() != old.port() => Ok(node),
                node => Err(format!("still the one at port {}", node.port())),
            }
        })
    }
}
