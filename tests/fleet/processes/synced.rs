//! Eight processes with background synchronisation on one Redis, behind links that are cut; some
//! are killed and started anew, and so is the Redis.
//!
//! A hot key has a limit below the number of nodes that it is given, so that no node has a part of
//! it in an outage: what is admitted must keep the hard bound. A second key is counted in the
//! store: in the end it must know each admitted unit once. Other fleets have parts of the hot key,
//! and add one limit at most while their store is silent.

use std::{
    cell::RefCell,
    collections::HashMap,
    env, fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    rc::Rc,
    thread,
    time::Duration,
};

use support::{
    Random,
    servers::{self, Flow, Proxy},
};
use tollgate::{
    Cost, Policy, TokenBucket,
    key::Key,
    store::{Redis, Store, StoreError, StoreExt, SyncConfig, driver::Ask},
};

use crate::processes::fleet::{
    journal::{Entry, Fate, Journal, Journals},
    meter::{Admission, Meter},
    node::now,
};

const VARIABLE: &str = "TOLLGATE_SYNCED_NODE";
const NODES: u64 = 8;
const SECOND: u64 = 1_000_000_000;
const TIME: u64 = 5 * SECOND;
const RATE: u64 = 400;
const BURST: u64 = 400;
/// The most units by which a node may be ahead, of the hot key and of the counted one.
const AHEAD: [u64; 2] = [10, 50];

fn rule(limit: usize) -> TokenBucket {
    match limit {
        0 => TokenBucket::per_second(RATE).burst(BURST),
        // It refills no unit during the test.
        _ => TokenBucket::new(tollgate::Quota::new(
            1_000_000,
            Duration::from_secs(365 * 24 * 3600 * 20),
        )),
    }
}

/// `nodes` are those that have a part of the hot key in an outage; 0 if none has.
fn config(limit: usize, seed: u64, nodes: u64) -> SyncConfig {
    let config = SyncConfig::new()
        .period(Duration::from_millis(50))
        .max_unsynced(AHEAD[limit])
        .seed(seed + limit as u64);
    match (limit, nodes) {
        (0, 0) => config.nodes(BURST + 1),
        (0, nodes) => config.nodes(nodes),
        _ => config.nodes(NODES),
    }
}

/// The orders of a node.
struct Orders {
    url: String,
    seed: u64,
    until: u64,
    /// See [`config`].
    parts: u64,
    /// The mean time between two calls, in milliseconds.
    gap: u64,
    journal: PathBuf,
}

impl Orders {
    fn text(&self) -> String {
        let Self {
            url,
            seed,
            until,
            parts,
            gap,
            journal,
        } = self;
        format!("{url} {seed} {until} {parts} {gap} {}", journal.display())
    }

    fn parse(text: &str) -> Self {
        let mut words = text.splitn(6, ' ');
        let mut word = || words.next().unwrap();
        Self {
            url: word().to_owned(),
            seed: word().parse().unwrap(),
            until: word().parse().unwrap(),
            parts: word().parse().unwrap(),
            gap: word().parse().unwrap(),
            journal: word().into(),
        }
    }
}

/// Does nothing, except in a process that a fleet starts.
#[test]
fn synced_node() {
    let Ok(orders) = env::var(VARIABLE) else {
        return;
    };
    let orders = Orders::parse(&orders);
    let journal = Journal::append_to(&orders.journal);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(serve(&orders, journal));
}

async fn serve(orders: &Orders, journal: Journal) {
    let redis = Redis::<TokenBucket>::connect_lazy(&orders.url).unwrap();
    let nodes = [0, 1].map(|limit| {
        redis
            .clone()
            .timeout(Duration::from_millis(200))
            .synced(config(limit, orders.seed, orders.parts))
    });
    let journal = Rc::new(RefCell::new(journal));
    let mut random = Random::new(orders.seed);
    let tasks = tokio::task::LocalSet::new();
    let calls = tasks.run_until(async {
        while now() < orders.until {
            for limit in [0, usize::from(random.once_in(2))] {
                let (node, journal) = (nodes[limit].clone(), Rc::clone(&journal));
                tokio::task::spawn_local(async move {
                    let from = now();
                    let (policy, rule) = (Policy::new("fleet"), rule(limit));
                    let key = Key::from(limit as u64);
                    let answer = node
                        .acquire(&[Ask::new(&policy, &rule, key, Cost::ONE)])
                        .await;
                    let fate = match answer {
                        Ok(decisions) if decisions.is_admitted() => Fate::Admitted,
                        Ok(_) => Fate::Refused,
                        Err(error) if error.is_unsupported() => panic!("{error}"),
                        Err(_) => Fate::Failed,
                    };
                    let to = now();
                    let (key, entry) = (limit as u64, limit);
                    journal.borrow_mut().write(&Entry {
                        limit: entry,
                        key,
                        fate,
                        from,
                        to,
                    });
                });
            }
            let gap = Duration::from_millis(orders.gap);
            tokio::time::sleep(gap / 2 + gap.mul_f64(random.below(100) as f64 / 100.0)).await;
        }
        // Calls that still wait.
        tokio::time::sleep(Duration::from_millis(500)).await;
    });
    calls.await;
    for node in &nodes {
        assert_eq!(
            node.flush(Duration::from_secs(10)).await,
            0,
            "{:?}",
            node.stats()
        );
    }
}

struct Node {
    process: Child,
    link: Proxy,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Fleet {
    redis: servers::Redis,
    folder: PathBuf,
    files: Vec<PathBuf>,
    random: Random,
    until: u64,
    nodes: u64,
    /// See [`Orders`].
    parts: u64,
    gap: u64,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Fleet {
    fn new(name: &str, seed: u64) -> Self {
        Self::on(servers::Redis::start(), name, seed)
    }

    fn on(redis: servers::Redis, name: &str, seed: u64) -> Self {
        let folder = format!("tollgate-synced-{}-{name}", std::process::id());
        let folder = env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        Self {
            redis,
            folder,
            files: Vec::new(),
            random: Random::new(seed),
            until: now() + TIME,
            // Together twice the rate of the hot key.
            nodes: NODES,
            parts: 0,
            gap: 10,
        }
    }

    fn start(&mut self) -> Node {
        let link = Proxy::start(self.redis.address());
        let journal = self.folder.join(self.files.len().to_string());
        self.files.push(journal.clone());
        let orders = Orders {
            url: format!("redis://127.0.0.1:{}", link.port()),
            seed: self.random.next_u64() >> 1,
            until: self.until,
            parts: self.parts,
            gap: self.gap,
            journal,
        };
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args([
                "processes::synced::synced_node",
                "--exact",
                "--test-threads=1",
                "--nocapture",
            ])
            .env(VARIABLE, orders.text())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Node {
            process: command.spawn().unwrap(),
            link,
        }
    }

    /// Runs the nodes, with a fault every now and then. Returns the journals.
    fn run(&mut self, mut fault: impl FnMut(&mut Self, &mut Vec<Node>)) -> Journals {
        let mut nodes: Vec<Node> = (0..self.nodes).map(|_| self.start()).collect();
        while now() + SECOND < self.until {
            thread::sleep(Duration::from_millis(100 + self.random.below(200)));
            fault(self, &mut nodes);
        }
        for node in &mut nodes {
            let status = node.process.wait().unwrap();
            assert!(status.success(), "a node: {status}");
        }
        let mut journals = Journals::default();
        self.files.iter().for_each(|file| journals.read(file));
        journals
    }

    /// Returns the units of the counted key that the store knows.
    fn known(&self) -> u64 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let store = Redis::<TokenBucket>::connect_lazy(self.redis.url()).unwrap();
            let (policy, rule) = (Policy::new("fleet"), rule(1));
            let ask = Ask::new(&policy, &rule, Key::from(1), Cost::ONE);
            let looked: Result<_, StoreError> = store.look(&[ask]).await;
            let look = looked.unwrap().as_slice()[0];
            look.limit().unwrap() - look.remaining().unwrap()
        })
    }
}

/// Returns how many units so many nodes, dead ones included, may be above the limit of the hot key.
fn ahead(nodes: u64) -> u64 {
    (nodes - 1) * AHEAD[0]
}

/// Asserts that the hot key stays within so many units above its limit. Returns the admitted units
/// of the counted key.
fn check(journals: &Journals, above: u64) -> u64 {
    let of = |limit, fate| {
        let entries = journals.entries.iter();
        entries.filter(move |entry: &&Entry| entry.limit == limit && entry.fate == fate)
    };
    let admissions: Vec<_> = of(0, Fate::Admitted)
        .map(|entry| Admission {
            from: entry.from,
            to: entry.to,
        })
        .collect();
    let meter = Meter {
        rate: RATE,
        burst: BURST + above,
        offset: 0,
        losses: &[],
    };
    let fates: HashMap<_, _> = [Fate::Admitted, Fate::Refused, Fate::Failed]
        .into_iter()
        .map(|fate| {
            (
                format!("{fate:?}"),
                [of(0, fate).count(), of(1, fate).count()],
            )
        })
        .collect();
    eprintln!("{fates:?}");
    assert_eq!(meter.worst(&admissions), None);
    assert!(
        admissions.len() as u64 > RATE,
        "too few calls to test anything"
    );
    assert!(of(0, Fate::Refused).count() > 100, "nothing was refused");
    of(1, Fate::Admitted).count() as u64
}

/// Faults of the links to the server.
const LINK_FAULTS: u64 = 4;

/// Disturbs the link of a node for a while.
fn disturb_link(fleet: &mut Fleet, nodes: &[Node], fault: u64) {
    let node = &nodes[fleet.random.below(NODES) as usize];
    match fault {
        // The store hears, and its answers are lost, with the connection.
        0 => node.link.set_answers(Flow::Swallow),
        1 => node.link.set_flow(Flow::Hold),
        2 => node.link.cut(),
        _ => node
            .link
            .delay(Duration::from_millis(fleet.random.below(100))),
    }
    thread::sleep(Duration::from_millis(fleet.random.below(400)));
    if fault == 0 || fleet.random.once_in(2) {
        node.link.cut();
    }
    node.link.set_flow(Flow::Forward);
    node.link.delay(Duration::ZERO);
}

/// Kills a node, and starts another one in its place.
fn replace_node(fleet: &mut Fleet, nodes: &mut [Node]) {
    let node = fleet.random.below(NODES) as usize;
    nodes[node] = fleet.start();
}

/// Asserts that the store knows the units that were admitted, up to those that died with so many
/// nodes.
fn check_known(fleet: &Fleet, admitted: u64, killed: u64) {
    let known = fleet.known();
    // A node may be killed between a decision and its line in the journal.
    let unwritten = 2 * killed;
    assert!(known <= admitted + unwritten, "{known} of {admitted}");
    assert!(
        known + killed * AHEAD[1] >= admitted,
        "{known} of {admitted}"
    );
}

#[test]
fn links_that_are_cut_lose_and_double_nothing() {
    let _beside = crate::processes::beside();
    let mut fleet = Fleet::new("cut", 5);
    let mut faults = 0;
    let journals = fleet.run(|fleet, nodes| {
        faults += 1;
        let fault = fleet.random.below(LINK_FAULTS);
        disturb_link(fleet, nodes, fault);
    });
    assert!(faults > 3);
    let admitted = check(&journals, ahead(NODES));
    assert_eq!(fleet.known(), admitted);
}

#[test]
fn nodes_that_are_killed_take_what_they_may_be_ahead() {
    let _beside = crate::processes::beside();
    let mut fleet = Fleet::new("killed", 6);
    let mut killed = 0;
    let journals = fleet.run(|fleet, nodes| {
        killed += 1;
        replace_node(fleet, nodes);
    });
    assert!(killed > 3);
    let admitted = check(&journals, ahead(NODES + killed));
    check_known(&fleet, admitted, killed);
}

#[test]
fn all_faults_together_keep_the_bound() {
    let _beside = crate::processes::beside();
    // It writes each change to its disk before it answers.
    let redis = servers::Redis::options().durable().start();
    let mut fleet = Fleet::on(redis, "all", 7);
    let (mut turn, mut killed) = (0, 0);
    let journals = fleet.run(|fleet, nodes| {
        match turn % 4 {
            0 => {
                killed += 1;
                replace_node(fleet, nodes);
            }
            2 => fleet.redis.restart(),
            _ => {
                let fault = fleet.random.below(LINK_FAULTS);
                disturb_link(fleet, nodes, fault);
            }
        }
        turn += 1;
    });
    assert!(turn > 3, "each kind of fault");
    let admitted = check(&journals, ahead(NODES + killed));
    check_known(&fleet, admitted, killed);
}

/// Plays a fleet that has parts of the hot key. In the middle its store is silent for 1.5 s.
fn silence(nodes: u64, gap: u64) {
    let _beside = crate::processes::beside();
    let mut fleet = Fleet::new(&format!("silent-{nodes}-{gap}"), 8);
    (fleet.nodes, fleet.parts, fleet.gap) = (nodes, nodes, gap);
    let mut turn = 0;
    let journals = fleet.run(|_, nodes| {
        turn += 1;
        if turn == 8 {
            nodes.iter().for_each(|node| node.link.set_flow(Flow::Hold));
            thread::sleep(Duration::from_millis(1500));
            for node in nodes {
                node.link.cut();
                node.link.set_flow(Flow::Forward);
            }
        }
    });
    assert!(turn > 8, "the store comes back");
    // Parts are rounded, and a call may be under way at each end.
    let admitted = check(&journals, BURST + ahead(nodes) + nodes);
    assert_eq!(fleet.known(), admitted);
}

#[test]
fn two_nodes_add_one_limit_in_an_outage() {
    silence(2, 3);
}

#[test]
fn eight_nodes_add_one_limit_in_an_outage() {
    silence(8, 10);
}

#[test]
fn eight_busy_nodes_add_one_limit_in_an_outage() {
    silence(8, 4);
}
