//! A cluster, and a master found through sentinels.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use tollgate::{
    AnyRule, Cost, Policy, TokenBucket,
    key::Key,
    store::{
        Redis, Store,
        driver::{Ask, Decisions},
    },
};

use super::{
    acquire, admitted, at_once, crowd::Crowd, look, policies::connect, policy, servers,
    until_answered,
};

/// An additional user of the nodes.
const USER: &[&str] = &["limiter", "on", ">p4ss", "~*", "&*", "+@all"];
/// The permissions in the documentation, for a cluster.
const USER_OF_CLUSTER: &str = "limiter on >p4ss ~tollgate:* +info +script|load +evalsha +eval +time +get +getrange +mget +pttl +set +setrange \
     +pexpire +pexpireat +del +cluster|slots +asking";
const CREDENTIALS: &str = "limiter:p4ss@";
const RESPONSE: Duration = Duration::from_millis(500);

async fn store(url: &str) -> Redis<TokenBucket> {
    let builder = Redis::<TokenBucket>::builder(url).response_timeout(RESPONSE);
    builder.connect().await.unwrap()
}

/// Makes calls without a pause until it is stopped or the limit is exhausted.
struct Load {
    stop: Arc<AtomicBool>,
    admitted: Arc<AtomicU64>,
    errors: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

const TASKS: u64 = 4;

impl Load {
    fn start(store: &Redis<TokenBucket>, rule: TokenBucket, key: Key) -> Self {
        let mut load = Self {
            stop: Arc::default(),
            admitted: Arc::default(),
            errors: Arc::default(),
            tasks: Vec::new(),
        };
        for _ in 0..TASKS {
            let store = store.clone();
            let (stop, admitted) = (Arc::clone(&load.stop), Arc::clone(&load.admitted));
            let errors = Arc::clone(&load.errors);
            load.tasks.push(tokio::spawn(async move {
                while !stop.load(SeqCst) {
                    match acquire(&store, &rule, key).await {
                        Ok(decision) => {
                            admitted.fetch_add(u64::from(decision.is_admitted()), SeqCst);
                        }
                        Err(error) => {
                            assert!(error.is_unavailable() || error.is_timeout(), "{error:?}");
                            errors.fetch_add(1, SeqCst);
                        }
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }));
        }
        load
    }

    fn admitted(&self) -> u64 {
        self.admitted.load(SeqCst)
    }

    fn errors(&self) -> u64 {
        self.errors.load(SeqCst)
    }

    /// Waits until there are this many more errors.
    fn wait_for_errors(&self, more: u64) {
        let before = self.errors();
        servers::wait_until("calls that fail", Duration::from_secs(30), || {
            match self.errors() - before {
                seen if seen >= more => Ok(()),
                seen => Err(seen.to_string()),
            }
        });
    }

    async fn end(self) -> (u64, u64) {
        self.stop.store(true, SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        (self.admitted.load(SeqCst), self.errors.load(SeqCst))
    }
}

/// Waits until a replica has everything that was written before.
pub(super) fn replicated(master: &servers::Redis, probe: &str) {
    let mut connection = master.connect().unwrap();
    // `WAIT` only covers the writes of its own connection.
    connection
        .call(&["SET", probe, "1", "PX", "60000"])
        .unwrap();
    match connection.call(&["WAIT", "1", "4000"]).unwrap() {
        servers::Reply::Number(1..) => {}
        other => panic!("expected a replica that is up to date, found {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster() {
    let options = servers::Redis::options().set("user", USER_OF_CLUSTER);
    let cluster = servers::Cluster::start_of(options);
    let hosts: Vec<_> = cluster.nodes()[..3]
        .iter()
        .map(|node| node.address().to_string())
        .collect();
    let url = format!("redis-cluster://{CREDENTIALS}{}", hosts.join(","));
    let store = store(&url).await;

    // All limits of a client are on one node and charged together.
    let (rule, hour) = (at_once(5), Policy::new("hour"));
    let client = Key::from(1_u64);
    let both = |one: Key, other: Key| {
        [
            Ask::new(policy(), &rule, one, Cost::ONE),
            Ask::new(&hour, &rule, other, Cost::ONE),
        ]
    };
    assert!(
        store
            .acquire(&both(client, client))
            .await
            .unwrap()
            .is_admitted()
    );
    let names: Vec<_> = cluster.nodes()[..3]
        .iter()
        .flat_map(|node| node.keys())
        .collect();
    let slots: HashSet<_> = names.iter().map(|name| cluster.slot_of(name)).collect();
    assert_eq!((names.len(), slots.len()), (2, 1));

    // Two clients in one call are an error that says what to do. Other calls are unaffected.
    let error = store
        .acquire(&both(client, Key::from(2_u64)))
        .await
        .unwrap_err();
    let why = error.to_string();
    assert!(why.contains("ask about each client by itself"), "{why}");
    assert!(error.is_unsupported(), "{error:?}");
    assert_eq!(
        look(&store, &rule, client).await.unwrap().remaining(),
        Some(4)
    );

    // During and after the migration of a slot every call finds the state.
    let slot = *slots.iter().next().unwrap();
    let from = cluster.master_of(slot);
    let target = cluster.nodes()[..3]
        .iter()
        .find(|node| node.port() != from.port());
    let migration = cluster.begin_migration(slot, target.unwrap());
    migration.move_keys();
    assert_eq!(
        acquire(&store, &rule, client).await.unwrap().remaining(),
        Some(3)
    );
    migration.finish();
    assert_eq!(
        acquire(&store, &rule, client).await.unwrap().remaining(),
        Some(2)
    );

    // Many concurrent clients in all slots, from two instances.
    let other = self::store(&url).await;
    let mut tasks = Vec::new();
    for client in 0..60_u64 {
        for store in [&store, &other, &store] {
            let store = store.clone();
            let calls =
                async move { admitted(&store, &at_once(5), Key::from(100 + client), 3).await };
            tasks.push((client, tokio::spawn(calls)));
        }
    }
    let mut by_client = [0; 60];
    for (client, task) in tasks {
        by_client[client as usize] += task.await.unwrap();
    }
    assert_eq!(by_client, [5; 60]);
    let holders = cluster.nodes()[..3]
        .iter()
        .filter(|node| !node.keys().is_empty());
    assert_eq!(holders.count(), 3);

    for node in &cluster.nodes()[..3] {
        let clients = node.command(&["CLIENT", "LIST"]);
        assert!(clients.contains("user=limiter"), "{clients}");
    }

    // A master dies under load.
    const LIMIT: u64 = 100_000;
    let busy = Key::from("busy").labelled();
    let load = Load::start(&store, at_once(LIMIT), busy);
    let name = servers::wait_until("the busy client's key", RESPONSE * 20, || {
        let mut all = cluster.nodes()[..3].iter().flat_map(|node| node.keys());
        let name = all.find(|name| name.windows(4).any(|part| part == b"busy"));
        name.map(|name| String::from_utf8(name).unwrap())
            .ok_or_else(|| "other keys".to_owned())
    });
    let master = cluster.master_of(cluster.slot_of(&name));
    let probe = name.replace(":api", ":probe");
    let sure = load.admitted();
    replicated(master, &probe);
    master.kill();
    // The admissions since then may be lost, and those in flight now.
    let unsure = load.admitted() + TASKS - sure;
    load.wait_for_errors(TASKS);
    cluster.settle();
    let before = until_answered(&store, &at_once(LIMIT), busy).await;
    assert!(before < 100, "{before} errors after the failover");
    let (total, errors) = load.end().await;
    let left = look(&store, &at_once(LIMIT), busy)
        .await
        .unwrap()
        .remaining()
        .unwrap();
    let charged = LIMIT - left;
    assert!(
        total <= charged + unsure,
        "{total} admitted, {charged} charged, {unsure} unsure"
    );
    // No call is sent twice if it may have been charged.
    let most = total + 1 + errors + u64::from(before);
    assert!(charged <= most, "{charged} charged, at most {most}");
    assert_eq!(
        admitted(&store, &at_once(5), Key::from(1000_u64), 8).await,
        5
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels() {
    const LIMIT: u64 = 100_000;
    let group = servers::Sentinel::start();
    for node in group.nodes() {
        node.command(&[&["ACL", "SETUSER"], USER].concat());
    }
    let url = group.url(&format!("redis-sentinel://{CREDENTIALS}"));
    let store = store(&url).await;
    let clients = group.master().command(&["CLIENT", "LIST"]);
    assert!(clients.contains("user=limiter"), "{clients}");
    let (rule, key) = (at_once(5), Key::from(1_u64));
    assert_eq!(admitted(&store, &rule, key, 3).await, 3);
    let busy = Key::from(2_u64);
    let load = Load::start(&store, at_once(LIMIT), busy);
    let sure = load.admitted();
    let old = group.master();
    replicated(old, "probe");
    let new = group.failover();
    assert_ne!(new.port(), old.port());
    let before = until_answered(&store, &at_once(LIMIT), busy).await;
    assert!(before < 100, "{before} errors after the failover");
    let (total, errors) = load.end().await;
    assert!(
        errors > 0 && total > sure,
        "{errors} errors, {total} admitted"
    );
    // The charges that reached the replica are kept.
    assert_eq!(admitted(&store, &rule, key, 8).await, 2);
    let error = Redis::<TokenBucket>::connect(url.replace(servers::Sentinel::MASTER, "nobody"));
    assert!(error.await.unwrap_err().is_unavailable());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_with_a_sentinel_and_the_master_that_falls_silent() {
    let group = servers::Sentinel::start();
    let url = group.url("redis-sentinel://");
    let store = store(&url).await;
    let (rule, key) = (at_once(5), Key::from(1_u64));
    assert_eq!(admitted(&store, &rule, key, 3).await, 3);
    let crowd = Crowd::start(&[Key::from(9_u64)], at_once(5), async || {
        connect(&url).await
    })
    .await;
    let old = group.master();
    replicated(old, "probe");
    // Silences the first sentinel of the list, and a server that still considers itself the master.
    group.sentinels()[0].pause();
    old.pause();
    until_answered(&store, &rule, Key::from(2_u64)).await;
    assert_eq!(admitted(&store, &rule, key, 8).await, 2);
    crowd.has_failed();
    crowd.is_answered();
    // A new connection also works with one of three sentinels silent.
    let new = group.nodes().iter().find(|node| node.port() != old.port());
    group.sentinels()[1].pause();
    new.unwrap().command(&["CLIENT", "KILL", "TYPE", "normal"]);
    until_answered(&store, &rule, Key::from(3_u64)).await;
    crowd.is_answered();
    crowd.end().await;
    for server in group.sentinels()[..2].iter().chain([old]) {
        server.resume();
    }
}

#[tokio::test]
async fn confusing_a_sentinel_with_a_server_is_a_specific_error() {
    let server = servers::Redis::start();
    let group = servers::Sentinel::start();
    let of_server = format!("redis-sentinel://{}/name", server.address());
    let of_sentinel = group.sentinels()[0].url();
    let strange = format!("redis-sentinel://{}/nobody", group.sentinels()[0].address());
    for (url, part) in [
        (of_server, "use `redis://` to connect to a server directly"),
        (of_sentinel, "expected `redis-sentinel://host:26379/name`"),
        (strange, "expected a name that they monitor"),
    ] {
        let error = Redis::<TokenBucket>::connect(url).await.unwrap_err();
        let why = error.to_string();
        assert!(why.contains(part), "{part}: {why}");
    }
}

/// A slot moves, and clients come of whom neither node knows anything: alone, several at once, and
/// with states that have logs beside them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_clients_are_limited_while_their_slot_moves() {
    const LIMIT: usize = 3;
    let cluster = servers::Cluster::start();
    let url = format!("redis-cluster://{}", cluster.nodes()[0].address());
    for (n, text) in [
        "token-bucket 3/1d",
        "fixed-window 3/365d",
        "sliding-log 3/1d",
        "sliding-log 3/1d & token-bucket 4/1d & sliding-log 5/1h",
    ]
    .into_iter()
    .enumerate()
    {
        // All clients in one slot.
        let builder = Redis::<AnyRule>::builder(&url).prefix(&format!("{{moving-{n}}}"));
        let store = builder.connect().await.unwrap();
        let rule: AnyRule = text.parse().unwrap();
        let acquire = async |client: u64| {
            let ask = [Ask::new(policy(), &rule, Key::from(client), Cost::ONE)];
            let answer = store.acquire(&ask).await;
            answer.unwrap_or_else(|error| panic!("{text}, client {client}: {error:?}"))
        };
        assert!(acquire(1).await.is_admitted());
        let slot = cluster.slot_of(format!("{{moving-{n}}}").as_bytes());
        let from = cluster.master_of(slot);
        let mut targets = cluster.nodes()[..3].iter();
        let target = targets.find(|node| node.port() != from.port()).unwrap();
        let migration = cluster.begin_migration(slot, target);
        let mut admitted = 0;
        for _ in 0..5 {
            admitted += usize::from(acquire(2).await.is_admitted());
        }
        assert_eq!(admitted, LIMIT, "{text}");
        let calls = (0..5 * 8).map(|call| acquire(10 + call % 8));
        let calls = join_all(calls).await.into_iter();
        let admitted = calls.filter(Decisions::is_admitted).count();
        assert_eq!(admitted, 8 * LIMIT, "{text}");
        migration.move_keys();
        for client in [1, 2, 1, 10, 1] {
            acquire(client).await;
        }
        migration.finish();
        for client in [1, 2, 10] {
            assert!(!acquire(client).await.is_admitted(), "{text}, {client}");
        }
        store.reset(policy(), &Key::from(1_u64)).await.unwrap();
        assert!(acquire(1).await.is_admitted());
    }
}
