//! The decisions of requests under each failure policy during faults of the server: as configured,
//! and in time.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use futures_util::future::{join, join_all};
use tokio::task::JoinHandle;
use tollgate::{
    AnyRule, Cost, Decision, Timestamp, TokenBucket, Verdict,
    key::Key,
    store::{
        CircuitBreakerConfig, Local, LocalBuilder, Redis, Store, StoreExt,
        driver::{Ask, Settlement},
    },
    time::{Clock, ManualClock, SystemClock},
};

use super::{
    acquire, at_once,
    callers::url_of,
    crowd::{Crowd, DEADLINE, RESPONSE},
    groups::replicated,
    in_time, look, only, policy, servers,
};

pub(super) const LIMIT: u64 = 100_000;
/// The number of tasks per policy.
pub(super) const TASKS: u64 = 2;
const SOON: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    Closed,
    Local,
}

/// The results of the requests under one policy.
#[derive(Debug, Default)]
struct Tally {
    /// Admitted by the server.
    by_server: AtomicU64,
    /// Admitted by this node's own store.
    here: AtomicU64,
    /// Decided without the server.
    without: AtomicU64,
}

/// Requests under all three policies, with a client each, without a pause.
pub(super) struct Policies {
    url: String,
    keys: [Key; 3],
    tallies: [Arc<Tally>; 3],
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
    /// Callers about the same clients, during all faults.
    crowd: Crowd,
}

pub(super) async fn connect(url: &str) -> Redis<TokenBucket> {
    let builder = Redis::<TokenBucket>::builder(url).response_timeout(RESPONSE);
    builder.connect().await.unwrap()
}

impl Policies {
    pub(super) async fn start(url: &str, keys: [Key; 3]) -> Self {
        servers::watch_this_runtime();
        let mut policies = Self {
            url: url.to_owned(),
            keys,
            tallies: Default::default(),
            stop: Arc::default(),
            tasks: Vec::new(),
            crowd: Crowd::start(&keys, at_once(LIMIT), async || connect(url).await).await,
        };
        let guarded = async || {
            let breaker = CircuitBreakerConfig::new();
            let pauses = [100, 500].map(Duration::from_millis);
            connect(url)
                .await
                .timeout(DEADLINE)
                .circuit_breaker(breaker.open_for(pauses[0], pauses[1]))
        };
        let local = guarded().await.fall_back_to(Local::new()).share(1, 2);
        policies.drive(Way::Open, guarded().await.fail_open());
        policies.drive(Way::Closed, guarded().await.fail_closed());
        policies.drive(Way::Local, local);
        policies.wait_for_the_server();
        policies
    }

    fn drive<S>(&mut self, way: Way, store: S)
    where
        S: Store<TokenBucket, Answer: Send, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
    {
        for _ in 0..TASKS {
            let (store, stop) = (store.clone(), Arc::clone(&self.stop));
            let (key, tally) = (
                self.keys[way as usize],
                Arc::clone(&self.tallies[way as usize]),
            );
            self.tasks.push(tokio::spawn(async move {
                while !stop.load(SeqCst) {
                    one_request(way, &store, key, &tally).await;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }));
        }
    }

    /// Returns the admissions by the server so far, under any policy.
    pub(super) fn admitted(&self) -> u64 {
        let admitted = self.tallies.iter();
        admitted.map(|tally| tally.by_server.load(SeqCst)).sum()
    }

    fn wait(&self, what: &str, count: impl Fn(&Tally) -> u64) {
        let counts = || self.tallies.each_ref().map(|tally| count(tally));
        let before = counts();
        servers::wait_until(what, SOON, || {
            self.assert_running();
            let now = counts();
            let more = now
                .iter()
                .zip(before)
                .all(|(now, before)| *now >= before + 20);
            more.then_some(())
                .ok_or_else(|| format!("{before:?}, {now:?}"))
        });
    }

    fn assert_running(&self) {
        let ended = self.tasks.iter().any(JoinHandle::is_finished);
        assert!(!ended, "a request ended in error or too late");
    }

    /// Waits until requests under each policy are decided without the server.
    pub(super) fn wait_for_failures(&self) {
        self.wait("requests without the server", |tally| {
            tally.without.load(SeqCst)
        });
        self.crowd.has_failed();
    }

    /// Waits until requests under each policy are decided by the server.
    pub(super) fn wait_for_the_server(&self) {
        self.wait("requests by the server", |tally| {
            tally.by_server.load(SeqCst)
        });
        self.crowd.is_answered();
    }

    /// Ends the requests. At most `unknown` admissions by the server may be uncharged in all. A
    /// node on its own admits at most its share.
    pub(super) async fn end(self, unknown: u64) {
        self.stop.store(true, SeqCst);
        self.crowd.end().await;
        for task in self.tasks {
            task.await.unwrap();
        }
        let store = connect(&self.url).await;
        for (key, tally) in self.keys.into_iter().zip(&self.tallies) {
            let left = look(&store, &at_once(LIMIT), key)
                .await
                .unwrap()
                .remaining();
            // Spending all remaining units must not exceed the limit.
            let sum = tally.by_server.load(SeqCst) + left.unwrap();
            assert!(
                sum <= LIMIT + unknown,
                "{tally:?}: {sum}, {unknown} unknown"
            );
            assert!(tally.here.load(SeqCst) <= LIMIT / 2, "{tally:?}");
        }
    }
}

async fn one_request<S>(way: Way, store: &S, key: Key, tally: &Tally)
where
    S: Store<TokenBucket, Error = Infallible>,
{
    let rule = at_once(LIMIT);
    let start = Instant::now();
    let answer = store.acquire(&[Ask::new(policy(), &rule, key, Cost::ONE)]);
    let decision = only(answer.await.unwrap());
    let (took, slack) = (start.elapsed(), servers::slack_since(start));
    assert!(
        took <= DEADLINE + slack,
        "{way:?}: {took:?}, slack {slack:?}"
    );
    let is_here = decision.limit() != Some(LIMIT);
    if is_here {
        tally.without.fetch_add(1, SeqCst);
        assert_eq!(decision.is_undecided(), way != Way::Local, "{decision:?}");
    }
    // The limit is never exhausted, so only the policy refuses.
    assert_eq!(
        decision.is_admitted(),
        !(is_here && way == Way::Closed),
        "{way:?}"
    );
    match (is_here, way) {
        (false, _) => tally.by_server.fetch_add(1, SeqCst),
        (true, Way::Local) => tally.here.fetch_add(1, SeqCst),
        (true, _) => 0,
    };
}

/// Returns three clients of a master in a cluster, and the name of the key of one of them.
pub(super) async fn clients_of(url: &str, master: &servers::Redis) -> ([Key; 3], String) {
    let store = connect(url).await;
    let client = |n: u32| Key::from(format!("client-{n:02}").as_str()).labelled();
    for n in 0..40 {
        acquire(&store, &at_once(LIMIT), client(n)).await.unwrap();
    }
    let names = master.keys().into_iter();
    let names: Vec<_> = names.map(|name| String::from_utf8(name).unwrap()).collect();
    let of_master = (0..40).filter(|n| {
        let part = format!("client-{n:02}");
        names.iter().any(|name| name.contains(&part))
    });
    let clients: Vec<_> = of_master.take(3).map(client).collect();
    (clients.try_into().unwrap(), names[0].clone())
}

/// Returns a client for each policy.
pub(super) fn clients() -> [Key; 3] {
    ["open", "closed", "local"].map(|name| Key::from(name).labelled())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_server_follows_the_policies() {
    let server = servers::Redis::start();
    let policies = Policies::start(&server.url(), clients()).await;
    for _ in 0..2 {
        server.pause();
        policies.wait_for_failures();
        server.resume();
        policies.wait_for_the_server();
    }
    policies.end(0).await;
}

/// Under rules of every kind. Charges of the fallback are settled while the server is down, and
/// afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_clock_is_ahead_does_not_extend_refusals() {
    let rules: Vec<AnyRule> = [
        "token-bucket 8/10s",
        "leaky-bucket 8/10s queue=8",
        "fixed-window 8/10s",
        "sliding-window 8/10s slices=5",
        "sliding-log 8/10s",
        "cascade 5/10s burst=3 > 2/10s burst=4",
        "three-color 5/10s burst=3 peak=10/10s peak-burst=6",
        "warm-up 9/1s over=2s",
        "token-bucket 8/10s & sliding-log 8/10s",
    ]
    .map(|rule| rule.parse().unwrap())
    .into();
    // The longest wait of any rule.
    let most = Duration::from_secs(20);
    let server = servers::Redis::start();
    for ahead in [600, -600] {
        let now = SystemClock::default().now().as_nanos();
        let now = now.saturating_add_signed(ahead * 1_000_000_000);
        let clock = ManualClock::new(Timestamp::from_nanos(now));
        let local = LocalBuilder::new().clock(clock).build();
        let redis = Redis::<AnyRule>::connect(server.url()).await.unwrap();
        let builder = redis.timeout(DEADLINE).fall_back_to(local);
        let store = builder.rule(|rule: &AnyRule| Some(rule.clone()));
        let key = |n| Key::from(format!("{ahead} {n}"));
        let call = async |n: usize| {
            let ask = Ask::new(policy(), &rules[n], key(n), Cost::ONE);
            only(store.acquire(&[ask]).await.unwrap())
        };
        let settle = async |n: usize, decision: &Decision| {
            let charge = { *decision }.take_charge().unwrap();
            let settlement = Settlement::new(policy(), &rules[n], key(n), charge, 8).unwrap();
            store.settle(vec![settlement]).await.unwrap();
        };
        server.pause();
        let calls = (0..rules.len()).map(|n| join(call(n), call(n)));
        let charged = join_all(calls).await;
        let alone = 2 * rules.len() as u64;
        assert_eq!((store.decided(), store.failures()), (alone, alone));
        for (n, (first, _)) in charged.iter().enumerate() {
            settle(n, first).await;
        }
        server.resume();
        for (n, (_, second)) in charged.iter().enumerate() {
            // A call that the server decides: the first one, or one in time.
            let there = async || loop {
                let alone = store.decided();
                let decision = call(n).await;
                if store.decided() == alone {
                    break decision;
                }
            };
            in_time(SOON, there()).await;
            settle(n, second).await;
            for _ in 0..20 {
                let decision = in_time(SOON, there()).await;
                let wait = match decision.verdict() {
                    Verdict::Delay(wait) => Some(wait),
                    _ => decision.retry_after(),
                };
                let rule = &rules[n];
                assert!(
                    wait.is_some_and(|wait| wait <= most),
                    "{rule}, {ahead}: {wait:?}"
                );
            }
        }
    }
}

/// With the default threshold of servers, five seconds. Until then the server answers no call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_busy_with_a_script_for_longer_than_its_threshold() {
    let server = servers::Redis::start();
    let threshold = server.command(&["CONFIG", "GET", "busy-reply-threshold"]);
    assert!(threshold.contains("5000"), "{threshold}");
    let store = connect(&server.url()).await.timeout(DEADLINE);
    let rule = at_once(LIMIT);
    let call = async || {
        let ask = Ask::new(policy(), &rule, Key::from(1_u64), Cost::ONE);
        store.acquire(&[ask]).await
    };
    assert!(call().await.is_ok());
    let policies = Policies::start(&server.url(), clients()).await;
    let mut other = server.connect().unwrap();
    other.send(&["EVAL", "while true do end", "0"]).unwrap();
    let begun = async { while call().await.is_ok() {} };
    tokio::time::timeout(SOON, begun).await.unwrap();
    assert!(call().await.unwrap_err().is_timeout());
    // Each request is timed: it waits for its deadline until the breaker opens.
    policies.wait_for_failures();
    servers::wait_until("a server that says so", SOON, || {
        match server.ask(&["PING"]) {
            Ok(servers::Reply::Error(busy)) if busy.starts_with("BUSY") => Ok(()),
            answer => Err(format!("{answer:?}")),
        }
    });
    policies.wait_for_failures();
    // A machine that is busy, too, may miss the deadline.
    let answered = async {
        loop {
            let error = call().await.unwrap_err();
            if !error.is_timeout() {
                break error;
            }
        }
    };
    let error = tokio::time::timeout(SOON, answered).await.unwrap();
    assert!(error.is_unavailable(), "{error:?}");
    server.command(&["SCRIPT", "KILL"]);
    policies.wait_for_the_server();
    policies.end(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_and_restarted_server_follows_the_policies() {
    // With persistence, the server keeps its charges.
    for (options, lost) in [
        (servers::Redis::options().durable(), 0),
        (servers::Redis::options(), LIMIT),
    ] {
        let server = options.start();
        let policies = Policies::start(&server.url(), clients()).await;
        server.kill();
        policies.wait_for_failures();
        server.restart();
        policies.wait_for_the_server();
        policies.end(lost).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loses_programs_and_connections() {
    let server = servers::Redis::start();
    let policies = Policies::start(&server.url(), clients()).await;
    for _ in 0..10 {
        server.command(&["SCRIPT", "FLUSH"]);
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    policies.wait_for_the_server();
    policies.end(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_full() {
    let server = servers::Redis::start();
    let policies = Policies::start(&server.url(), clients()).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    policies.wait_for_failures();
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    policies.wait_for_the_server();
    policies.end(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_becomes_a_replica() {
    let (server, master) = (servers::Redis::start(), servers::Redis::start());
    let policies = Policies::start(&server.url(), clients()).await;
    server.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    policies.wait_for_failures();
    server.command(&["REPLICAOF", "NO", "ONE"]);
    policies.wait_for_the_server();
    // It may have copied the data of its master, which has none.
    policies.end(LIMIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_its_cluster_replaces() {
    let cluster = servers::Cluster::start();
    let master = &cluster.nodes()[0];
    let url = url_of(&cluster);
    let (clients, name) = clients_of(&url, master).await;
    let policies = Policies::start(&url, clients).await;
    let sure = policies.admitted();
    replicated(master, &name.replace(":api", ":probe"));
    master.kill();
    // Possibly missing on the replica: the admissions since then, and the calls in flight.
    let unknown = policies.admitted() - sure + 3 * TASKS;
    policies.wait_for_failures();
    policies.wait_for_the_server();
    policies.end(unknown).await;
}
