//! A run of a fleet: nodes are killed and frozen at random, and their server is restarted.

use std::{
    collections::HashMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use support::Random;

use super::{
    journal::{Entry, Fate, Journals},
    limits::{Limit, limits},
    meter::{Admission, Loss, Meter, exactly},
    node::{Orders, VARIABLE, now},
};

const NODES: u64 = 8;

/// The settings of a run.
pub struct Run<'a> {
    /// The test that is a node, by its path in the program.
    pub node: &'a str,
    /// As the node's own program understands it.
    pub store: &'a str,
    pub url: String,
    pub seed: u64,
    pub keys: u64,
    /// The calls a second for all of the many keys.
    pub demand: u64,
    pub time: Duration,
    /// The difference between the clocks of two nodes by which the store decides; zero if the store
    /// has a clock of its own.
    pub offset: Duration,
    /// The least share, in percent, of what an exact bucket admits.
    pub used: u64,
    /// Restarts the server, once.
    pub restart: &'a dyn Fn(),
    /// The restart loses all data.
    pub forgets: bool,
}

/// A node, killed when dropped.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Node {
    /// Runs this test program again, and in it only the test that is a node.
    fn start(test: &str, orders: &Orders) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args([test, "--exact", "--test-threads=1", "--nocapture"])
            .env(VARIABLE, orders.write())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn signal(&self, name: &str) {
        let script = r#"kill -s "$1" "$2""#;
        let arguments = ["-c", script, "sh", name, &self.0.id().to_string()];
        let status = Command::new("sh").args(arguments).status().unwrap();
        assert!(status.success(), "SIG{name}: {status}");
    }
}

/// A folder for journals, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("tollgate-fleet-{}-{name}", std::process::id());
        let path = env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Run<'_> {
    /// Runs the fleet, and asserts what leases promise. Returns the journals.
    ///
    /// # Panics
    ///
    /// If more was admitted than allowed; or less than the share `used` of what one exact bucket
    /// with the stricter rule admits of the same calls, beside the units that faults of nodes have
    /// spoilt.
    pub fn check(&self) -> Journals {
        let (journals, losses, faults) = self.execute();
        let limits = limits(self.keys, self.demand);
        for (index, limit) in limits.iter().enumerate() {
            let entries = journals.entries.iter();
            let entries = entries.filter(|entry| entry.limit == index).copied();
            self.check_limit(limit, entries, (&losses, faults));
            eprintln!("{} {}: {:?}", self.store, limit.name, journals.sums[index]);
        }
        journals
    }

    fn check_limit(
        &self,
        limit: &Limit,
        entries: impl Iterator<Item = Entry>,
        (losses, faults): (&[Loss], u64),
    ) {
        let mut of_key: HashMap<u64, Vec<Entry>> = HashMap::new();
        for entry in entries {
            of_key.entry(entry.key).or_default().push(entry);
        }
        let meter = Meter {
            rate: limit.rate,
            burst: limit.burst,
            offset: self.offset.as_nanos() as u64,
            losses,
        };
        let full_at: Vec<u64> = losses.iter().map(|loss| loss.from).collect();
        let (mut calls, mut failed, mut admitted, mut ideal) = (0, 0, 0, 0);
        for (key, entries) in &of_key {
            let of_fate = |fate| entries.iter().filter(move |entry| entry.fate == fate);
            let admissions = of_fate(Fate::Admitted).map(|entry| Admission {
                from: entry.from,
                to: entry.to,
            });
            let admissions: Vec<_> = admissions.collect();
            let over = meter.worst(&admissions);
            assert_eq!(
                over, None,
                "{} {} key {key}, seed {}",
                self.store, limit.name, self.seed
            );
            // A call without an answer was offered to nobody.
            let answered = entries.iter().filter(|entry| entry.fate != Fate::Failed);
            let answered: Vec<u64> = answered.map(|entry| entry.from).collect();
            ideal += exactly(limit.rate, limit.held_burst(), &answered, &full_at);
            admitted += admissions.len() as u64;
            failed += of_fate(Fate::Failed).count();
            calls += entries.len() as u64;
        }
        let name = limit.name;
        eprintln!(
            "{} {name}: {calls} calls of {} keys, {admitted} admitted, {ideal} by an exact bucket, {failed} failed",
            self.store,
            of_key.len()
        );
        let offered = limit.demand * self.time.as_secs();
        assert!(calls > offered / 2, "{name}: {calls} of {offered} calls");
        // Some calls must be refused, or nothing was tested.
        assert!(
            ideal + failed as u64 + 10 < calls,
            "{name}: {ideal} of {calls}"
        );
        // Nobody can spend what a node had when it was killed or frozen: at most what it is asked
        // for during a hold.
        let hold = limit.hold.as_millis() as u64;
        let spoilt = faults * (limit.demand * hold / 1000).div_ceil(NODES);
        assert!(
            100 * (admitted + spoilt) >= self.used * ideal,
            "{} {name}, seed {}: {admitted} of {ideal}, {spoilt} spoilt",
            self.store,
            self.seed
        );
    }

    /// Runs the fleet. Returns the journals, the times in which the server lost its data, and the
    /// number of faults of nodes.
    fn execute(&self) -> (Journals, Vec<Loss>, u64) {
        let folder = Folder::new(&format!("{}-{}", self.store, self.forgets));
        let begin = now();
        let until = begin + self.time.as_nanos() as u64;
        let mut files = Vec::new();
        let mut random = Random::new(self.seed);
        let mut start = |random: &mut Random| {
            let journal = folder.path().join(files.len().to_string());
            files.push(journal.clone());
            let orders = Orders {
                store: self.store.to_owned(),
                url: self.url.clone(),
                journal,
                seed: random.next_u64() >> 1,
                nodes: NODES,
                keys: self.keys,
                demand: self.demand,
                until,
            };
            Node::start(self.node, &orders)
        };
        let mut nodes: Vec<Node> = (0..NODES).map(|_| start(&mut random)).collect();
        let mut losses = Vec::new();
        let (mut killed, mut frozen, mut is_restarted) = (0, 0, false);
        // The last second is calm, so that nodes end by themselves.
        while now() + 1_000_000_000 < until {
            thread::sleep(Duration::from_millis(200 + random.below(300)));
            let node = random.below(NODES) as usize;
            if !is_restarted && now() > begin + (until - begin) / 2 {
                is_restarted = true;
                let from = now();
                (self.restart)();
                if self.forgets {
                    losses.push(self.loss(from));
                }
            } else if random.once_in(3) {
                killed += 1;
                nodes[node] = start(&mut random);
            } else {
                frozen += 1;
                nodes[node].signal("STOP");
                thread::sleep(Duration::from_millis(20 + random.below(300)));
                nodes[node].signal("CONT");
            }
        }
        assert!(is_restarted && killed + frozen > 0);
        eprintln!("{}: {killed} killed, {frozen} frozen", self.store);
        for node in &mut nodes {
            let status = node.0.wait().unwrap();
            assert!(status.success(), "a node: {status}");
        }
        drop(nodes);
        let mut journals = Journals::default();
        files.iter().for_each(|file| journals.read(file));
        (journals, losses, killed + frozen)
    }

    /// Units that were granted before a loss can be spent until the bucket would have been full.
    fn loss(&self, from: u64) -> Loss {
        let limits = limits(self.keys, self.demand);
        let fill = limits.map(|limit| 1_000_000_000 * limit.burst / limit.rate);
        Loss {
            from,
            to: now() + fill.into_iter().max().unwrap_or(0),
        }
    }
}
