//! Eight processes that share one limit of calls in flight, on a real server: some are killed, one
//! is frozen, and one is cut off, each for longer than the lease.

use std::{
    env, fs,
    io::{BufWriter, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread::sleep,
    time::{Duration, SystemTime},
};

use support::{
    Random,
    servers::{self, Flow, Proxy},
};
use tollgate::{
    AnyRule, Cost, Limiter, Policy,
    store::{BoxStore, Memcached, Redis, StoreError, StoreExt},
};

const VARIABLE: &str = "TOLLGATE_IN_FLIGHT_NODE";
const RULE: &str = "in-flight 8 lease=2s retry-after=0s";
const MOST: usize = 8;
const LEASE: u64 = 2_000_000_000;
const NODES: usize = 8;
/// The calls of a node that ask for a permit at once.
const CALLS: u64 = 4;

fn now() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    since.as_nanos() as u64
}

/// Does nothing, except in a process that the fleet starts.
#[test]
fn node() {
    let Ok(orders) = env::var(VARIABLE) else {
        return;
    };
    let words: Vec<_> = orders.splitn(4, ' ').collect();
    let [store, url, until, journal] = words[..] else {
        panic!("{orders}")
    };
    let until: u64 = until.parse().unwrap();
    let journal = Mutex::new(BufWriter::new(fs::File::create(journal).unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(async {
        let store: BoxStore<AnyRule, StoreError> = match store {
            "redis" => {
                let builder = Redis::<AnyRule>::builder(url);
                let builder = builder.response_timeout(Duration::from_millis(300));
                builder.connect_lazy().unwrap().boxed()
            }
            _ => Memcached::<AnyRule>::connect_lazy(url).unwrap().boxed(),
        };
        let rule: AnyRule = RULE.parse().unwrap();
        let limiter = Limiter::new(Policy::new("exports"), rule, Arc::new(store));
        let calls = (0..CALLS).map(|n| {
            let seed = now() ^ u64::from(std::process::id()) << 16 ^ n;
            hold(&limiter, &journal, seed, until)
        });
        futures_util::future::join_all(calls).await;
    }));
}

/// Holds permits, most of them for a short time, until the node's time is over.
async fn hold(
    limiter: &Limiter<AnyRule, Arc<BoxStore<AnyRule, StoreError>>>,
    journal: &Mutex<BufWriter<fs::File>>,
    seed: u64,
    until: u64,
) {
    let write = |kind: &str, id: u64| {
        let mut journal = journal.lock().unwrap();
        writeln!(journal, "{kind} {id} {}", now()).unwrap();
        // A node that is killed has written what it held.
        journal.flush().unwrap();
    };
    let mut random = Random::new(seed);
    while now() < until {
        let Ok(Ok(permit)) = limiter.permit("alice", Cost::ONE).await else {
            tokio::time::sleep(Duration::from_millis(10 + random.below(20))).await;
            continue;
        };
        let id = random.next_u64() >> 1;
        write("begin", id);
        let millis = match random.below(12) {
            0 => 2000 + random.below(2000),
            _ => random.below(100),
        };
        tokio::time::sleep(Duration::from_millis(millis)).await;
        // Before it is given back: a call counts for less than the time of its permit.
        write("end", id);
        drop(permit);
    }
}

/// A node, killed when dropped.
struct Node {
    child: Child,
    journal: PathBuf,
    proxy: Proxy,
    /// When its process was killed.
    killed: u64,
    /// The time of a fault that was longer than the lease.
    fault: Option<(u64, u64)>,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Node {
    fn start(store: &str, server: SocketAddr, journal: PathBuf, until: u64) -> Self {
        let proxy = Proxy::start(server);
        let url = format!("{store}://{}", proxy.address());
        let orders = format!("{store} {url} {until} {}", journal.display());
        let child = Command::new(env::current_exe().unwrap())
            .args(["processes::node", "--exact", "--nocapture"])
            .env(VARIABLE, orders)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            journal,
            proxy,
            killed: u64::MAX,
            fault: None,
        }
    }

    fn signal(&self, name: &str) {
        let script = r#"kill -s "$1" "$2""#;
        let arguments = ["-c", script, "sh", name, &self.child.id().to_string()];
        let status = Command::new("sh").args(arguments).status().unwrap();
        assert!(status.success(), "SIG{name}: {status}");
    }

    /// Returns when each call began and ended, and if a fault had lost its permit by then.
    fn calls(&self) -> Vec<(u64, u64)> {
        let text = fs::read_to_string(&self.journal).unwrap();
        let mut open = Vec::new();
        let mut calls = Vec::new();
        for line in text.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let [kind, id, at] = words[..] else { continue };
            let at: u64 = at.parse().unwrap();
            match kind {
                "begin" => open.push((id.to_owned(), at)),
                _ => {
                    let place = open.iter().position(|(known, _)| known == id).unwrap();
                    calls.push((open.swap_remove(place).1, at));
                }
            }
        }
        // The kill ended them.
        let killed = open.into_iter().map(|(_, begin)| (begin, self.killed));
        calls.into_iter().chain(killed).collect()
    }

    /// Returns the times in which calls count by the stated fault: a node that cannot renew for two
    /// thirds of the lease may have lost its permits, until a renewal after the fault or their
    /// ends.
    fn counted(&self) -> Vec<(u64, u64)> {
        let Some((from, to)) = self.fault else {
            return self.calls();
        };
        let lost = from + 2 * LEASE / 3;
        let calls = self
            .calls()
            .into_iter()
            .filter_map(|(begin, end)| match begin {
                _ if begin < lost => Some((begin, end.min(lost))),
                // Also one that was admitted before the fault, and learns of it now.
                _ if begin < to + LEASE => None,
                _ => Some((begin, end)),
            });
        calls.collect()
    }
}

/// Returns the most calls at once, and since when.
fn most(calls: impl Iterator<Item = (u64, u64)>) -> (usize, u64) {
    let mut events: Vec<(u64, bool)> = calls
        .filter(|(begin, end)| begin < end)
        .flat_map(|(begin, end)| [(begin, true), (end, false)])
        .collect();
    // At one instant, ends come first.
    events.sort_unstable();
    let (mut now, mut most) = (0, (0, 0));
    for (at, begins) in events {
        now = if begins { now + 1 } else { now - 1 };
        if now > most.0 {
            most = (now, at);
        }
    }
    most
}

fn a_fleet_keeps_the_limit(store: &str, server: SocketAddr) {
    let folder = env::temp_dir().join(format!("tollgate-in-flight-{}-{store}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let begun = now();
    let at = |seconds: f64| begun + (seconds * 1e9) as u64;
    let wait = |until: u64| sleep(Duration::from_nanos(until.saturating_sub(now())));
    let mut number = 0;
    let mut start = |folder: &Path| {
        number += 1;
        Node::start(store, server, folder.join(number.to_string()), at(13.0))
    };
    let mut nodes: Vec<_> = (0..NODES).map(|_| start(&folder)).collect();
    wait(at(2.0));
    for victim in [0, 1] {
        nodes[victim].killed = now();
        nodes[victim].child.kill().unwrap();
    }
    nodes.extend([start(&folder), start(&folder)]);
    let from = now();
    nodes[2].signal("STOP");
    nodes[3].proxy.set_flow(Flow::Swallow);
    wait(at(6.5));
    nodes[2].signal("CONT");
    nodes[3].proxy.set_flow(Flow::Forward);
    nodes[3].proxy.cut();
    let to = now();
    for faulty in [2, 3] {
        nodes[faulty].fault = Some((from, to));
    }
    for node in &mut nodes {
        let ended = node.child.wait().unwrap();
        assert!(ended.success() || node.killed < u64::MAX, "{ended}");
    }
    let (held, since) = most(nodes.iter().flat_map(Node::counted));
    assert!(
        held <= MOST,
        "{held} calls at once after {} ms",
        (since - begun) / 1_000_000
    );
    // What is beyond is that of the nodes that were cut off.
    let (held, _) = most(nodes.iter().flat_map(Node::calls));
    let calls: usize = nodes.iter().map(|node| node.calls().len()).sum();
    eprintln!("{store}: {calls} calls, {held} at once");
    assert!(held <= MOST + 2 * CALLS as usize, "{held}");
    assert!(calls > 100, "{calls}");
    // Nobody was admitted above it since all nodes renew again.
    let healed = |at: u64| at > to + LEASE;
    let late = nodes
        .iter()
        .flat_map(Node::calls)
        .filter(|(begin, _)| healed(*begin));
    for (begin, _) in late {
        let all = nodes.iter().flat_map(Node::calls);
        let at_once = all.filter(|call| (call.0..call.1).contains(&begin)).count();
        assert!(at_once <= MOST, "{at_once} calls at once after the faults");
    }
    // Once all faults are over, all permits are there again.
    let late = |(begin, end): (u64, u64)| (end > at(10.5)).then_some((begin.max(at(10.5)), end));
    let (held, _) = most(nodes.iter().flat_map(Node::calls).filter_map(late));
    assert_eq!(held, MOST, "permits were lost");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn eight_processes_on_redis_keep_the_limit() {
    let server = servers::Redis::start();
    a_fleet_keeps_the_limit("redis", server.address());
    servers::wait_until("no key is left", Duration::from_secs(20), || {
        match server.command(&["DBSIZE"]).as_str() {
            "0" => Ok(()),
            left => Err(format!("{left} keys")),
        }
    });
}

#[test]
fn eight_processes_on_memcached_keep_the_limit() {
    let server = servers::Memcached::start();
    a_fleet_keeps_the_limit("memcached", server.address());
}
