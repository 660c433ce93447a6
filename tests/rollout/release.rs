//! Two releases as processes, with the servers that they share.

use std::{
    collections::HashMap,
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::servers;

/// The timeout of the test, longer than any call takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Stores that run any rule: by a script in Redis, and by compare-and-swap in memcached.
pub(crate) const STORES: [&str; 2] = ["redis", "swaps"];
/// The counters in memcached, which run only windows of the calendar.
pub(crate) const COUNTERS: &str = "counters";

/// Returns the names of the stores in which both releases share the state of a rule. In Redis they
/// do not share that of a log.
pub(crate) fn stores_of(rule: &str) -> impl Iterator<Item = &'static str> {
    let is_log = rule.contains("sliding-log");
    let is_window = rule.starts_with("fixed-window") || rule.starts_with("sliding-window");
    let is_counted = is_window && !rule.contains('&') && !rule.contains("first-call");
    let stores = STORES.into_iter().skip(usize::from(is_log));
    stores.chain(is_counted.then_some(COUNTERS))
}

/// A key under a rule in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    pub(crate) store: &'static str,
    pub(crate) key: &'a str,
    pub(crate) rule: &'a str,
}

/// A decision as a worker reports it. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The number of the command, which identifies its charge for a settlement.
    pub(crate) id: u64,
    pub(crate) is_admitted: bool,
    /// The delay if admitted, otherwise `retry_after`.
    pub(crate) wait: u64,
    pub(crate) at: u64,
    pub(crate) remaining: u64,
    pub(crate) class: u8,
}

impl Answer {
    fn read(id: u64, line: &str) -> Self {
        let words: Vec<_> = line.split(' ').collect();
        let [verdict, wait, at, remaining, class] = words[..] else {
            panic!("expected a decision, found `{line}`");
        };
        Self {
            id,
            is_admitted: verdict != "refuse",
            wait: wait.parse().unwrap(),
            at: at.parse().unwrap(),
            remaining: remaining.parse().unwrap(),
            class: class.parse().unwrap(),
        }
    }

    /// Returns the departure of an admitted call, or the instant at which a refused one can pass.
    pub(crate) fn until(&self) -> u64 {
        self.at.saturating_add(self.wait)
    }
}

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<String>>>>;

/// A process of one release.
pub(crate) struct Release {
    pub(crate) name: &'static str,
    commands: mpsc::UnboundedSender<String>,
    waiting: Waiting,
    next: AtomicU64,
    _process: Child,
}

impl Release {
    fn start(name: &'static str, redis: &str, memcached: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_worker"))
            .args([name, redis, memcached])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (mut input, output) = (
            process.stdin.take().unwrap(),
            process.stdout.take().unwrap(),
        );
        let (commands, mut to_send) = mpsc::unbounded_channel::<String>();
        tokio::spawn(async move {
            while let Some(command) = to_send.recv().await {
                input.write_all(command.as_bytes()).await.unwrap();
            }
        });
        let waiting = Waiting::default();
        let answered = Arc::clone(&waiting);
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Some(line) = lines.next_line().await.unwrap() {
                let (id, answer) = line.split_once(' ').unwrap();
                let waits = answered.lock().unwrap().remove(&id.parse().unwrap());
                // A failed test no longer receives answers.
                let _ = waits.unwrap().send(answer.to_owned());
            }
            // Ends the waiting calls.
            answered.lock().unwrap().clear();
        });
        Self {
            name,
            commands,
            waiting,
            next: AtomicU64::new(1),
            _process: process,
        }
    }

    pub(crate) async fn call(
        &self,
        name: &str,
        target: Target<'_>,
        numbers: [u64; 2],
    ) -> (u64, String) {
        let id = self.next.fetch_add(1, Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting.lock().unwrap().insert(id, sender);
        let Target { store, key, rule } = target;
        let [first, second] = numbers;
        let command = format!("{id} {name} {store} {key} {first} {second} {rule}\n");
        self.commands.send(command).unwrap();
        let answer = timeout(LIMIT, answer).await;
        let answer = answer.unwrap_or_else(|_| panic!("{}: {name} {target:?}: silence", self.name));
        let answer =
            answer.unwrap_or_else(|_| panic!("{}: {name} {target:?}: it ended", self.name));
        // Neither release returns an error for the states of the other.
        let is_error = answer.starts_with("error") || answer.contains(";error");
        assert!(!is_error, "{}: {name} {target:?}: {answer}", self.name);
        (id, answer)
    }

    pub(crate) async fn acquire(&self, target: Target<'_>, cost: u64) -> Answer {
        let (id, answer) = self.call("acquire", target, [cost, 0]).await;
        Answer::read(id, &answer)
    }

    /// Settles the charge of an earlier answer of this release.
    pub(crate) async fn settle(&self, target: Target<'_>, charged: Answer, actual: u64) {
        self.call("settle", target, [charged.id, actual]).await;
    }

    /// Makes calls by two callers for some time, with a pause after each refusal.
    pub(crate) async fn flood(&self, target: Target<'_>, cost: u64, time: Duration) -> Vec<Answer> {
        let millis = time.as_millis() as u64;
        let (id, answers) = self.call("flood", target, [cost, millis]).await;
        let answers = answers.split(';');
        answers.map(|answer| Answer::read(id, answer)).collect()
    }

    pub(crate) async fn reset(&self, target: Target<'_>) {
        self.call("reset", target, [0, 0]).await;
    }

    /// Makes calls until one is refused. Returns the number of admitted units, and the refusal.
    pub(crate) async fn exhaust(&self, target: Target<'_>, cost: u64) -> (u64, Answer) {
        let mut admitted = 0;
        for _ in 0..10_000 {
            let answer = self.acquire(target, cost).await;
            if !answer.is_admitted {
                return (admitted, answer);
            }
            admitted += cost;
        }
        panic!("{}: {target:?} was never refused", self.name);
    }

    async fn unreadable(&self) -> u64 {
        let (key, rule) = ("-", "-");
        let target = Target {
            store: "redis",
            key,
            rule,
        };
        let (_, count) = self.call("unreadable", target, [0, 0]).await;
        count.parse().unwrap()
    }
}

/// Both releases, and the servers.
pub(crate) struct Rollout {
    pub(crate) releases: [Release; 2],
    _redis: servers::Redis,
    _memcached: servers::Memcached,
}

impl Rollout {
    pub(crate) async fn start() -> Arc<Self> {
        let start = || (servers::Redis::start(), servers::Memcached::start());
        let (redis, memcached) = tokio::task::spawn_blocking(start).await.unwrap();
        let address = format!("memcached://{}", memcached.address());
        let release = |name| Release::start(name, &redis.url(), &address);
        Arc::new(Self {
            releases: ["before", "now"].map(release),
            _redis: redis,
            _memcached: memcached,
        })
    }

    /// Checks that each release could read every state of the other.
    pub(crate) async fn end(self: Arc<Self>) {
        for release in &self.releases {
            let unreadable = release.unreadable().await;
            assert_eq!(
                unreadable, 0,
                "states that `{}` could not read",
                release.name
            );
        }
    }
}
