//! Eight processes with background synchronisation on one Redis, behind links that are cut; some are killed and started anew, and so is the Redis.
//!
//! A hot key has a limit below the number of nodes that it is given, so that no node has a part of it in an outage: what is admitted must keep the hard
//! bound. A second key is counted in the store: in the end it must know each admitted unit once.

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
    store::{Ask, Error, Redis, Store, StoreExt, SyncConfig},
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
/// How far ahead of the store a node may be, of the hot key and of the counted one.
const AHEAD: [u64; 2] = [10, 50];

fn rule(limit: usize) -> TokenBucket {
    match limit {
        0 => TokenBucket::per_second(RATE).burst(BURST),
        // It refills no unit during the test.
        _ => TokenBucket::new(tollgate::Quota::new(
            1_000_000,
            Duration::from_secs(365 * 24 * 3600 * 100),
        )),
    }
}

fn config(limit: usize, seed: u64) -> SyncConfig {
    let config = SyncConfig::new()
        .period(Duration::from_millis(50))
        .most_ahead(AHEAD[limit])
        .seed(seed + limit as u64);
    match limit {
        0 => config.nodes(BURST + 1),
        _ => config.nodes(NODES),
    }
}

/// Does nothing, except in a process that a fleet starts.
#[test]
fn synced_node() {
    let Ok(orders) = env::var(VARIABLE) else {
        return;
    };
    let words: Vec<_> = orders.splitn(4, ' ').collect();
    let (url, seed, until) = (
        words[0],
        words[1].parse().unwrap(),
        words[2].parse().unwrap(),
    );
    let journal = Journal::append_to(&PathBuf::from(words[3]));
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(serve(url, seed, until, journal));
}

async fn serve(url: &str, seed: u64, until: u64, journal: Journal) {
    let redis = Redis::<TokenBucket>::connect_lazy(url).unwrap();
    let nodes = [0, 1].map(|limit| {
        redis
            .clone()
            .timeout(Duration::from_millis(200))
            .synced(config(limit, seed))
    });
    let journal = Rc::new(RefCell::new(journal));
    let mut random = Random::new(seed);
    let tasks = tokio::task::LocalSet::new();
    let calls = tasks.run_until(async {
        while now() < until {
            // Together twice the rate of the hot key.
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
            tokio::time::sleep(Duration::from_millis(5 + random.below(10))).await;
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
        }
    }

    fn start(&mut self) -> Node {
        let link = Proxy::start(self.redis.address());
        let journal = self.folder.join(self.files.len().to_string());
        self.files.push(journal.clone());
        let (port, seed) = (link.port(), self.random.next_u64() >> 1);
        let (until, journal) = (self.until, journal.display());
        let orders = format!("redis://127.0.0.1:{port} {seed} {until} {journal}");
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args([
                "processes::synced::synced_node",
                "--exact",
                "--test-threads=1",
                "--nocapture",
            ])
            .env(VARIABLE, orders)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Node {
            process: command.spawn().unwrap(),
            link,
        }
    }

    /// Runs the nodes, with a fault every now and then. Returns the journals.
    fn run(&mut self, mut fault: impl FnMut(&mut Self, &mut Vec<Node>)) -> Journals {
        let mut nodes: Vec<Node> = (0..NODES).map(|_| self.start()).collect();
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
            let looked: Result<_, Error> = store.look(&[ask]).await;
            let look = looked.unwrap().as_slice()[0];
            look.limit().unwrap() - look.remaining().unwrap()
        })
    }
}

/// Asserts the bound of the hot key, with so many nodes that were killed. Returns the admitted units of the counted key.
fn check(journals: &Journals, killed: u64) -> u64 {
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
        burst: BURST + (NODES - 1 + killed) * AHEAD[0],
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
    eprintln!("{fates:?}, {killed} killed");
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

/// Asserts that the store knows the units that were admitted, up to those that died with so many nodes.
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
    let _alone = crate::processes::alone();
    let mut fleet = Fleet::new("cut", 5);
    let mut faults = 0;
    let journals = fleet.run(|fleet, nodes| {
        faults += 1;
        let fault = fleet.random.below(LINK_FAULTS);
        disturb_link(fleet, nodes, fault);
    });
    assert!(faults > 3);
    let admitted = check(&journals, 0);
    assert_eq!(fleet.known(), admitted);
}

#[test]
fn nodes_that_are_killed_take_what_they_may_be_ahead() {
    let _alone = crate::processes::alone();
    let mut fleet = Fleet::new("killed", 6);
    let mut killed = 0;
    let journals = fleet.run(|fleet, nodes| {
        killed += 1;
        replace_node(fleet, nodes);
    });
    assert!(killed > 3);
    check_known(&fleet, check(&journals, killed), killed);
}

#[test]
fn all_faults_together_keep_the_bound() {
    let _alone = crate::processes::alone();
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
    check_known(&fleet, check(&journals, killed), killed);
}
