//! Stores that are created while no server runs, and connect at their first calls.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};
use tollgate::{
    Cost, TokenBucket,
    key::Key,
    store::{
        Redis, RedisBuilder, Store, StoreExt,
        driver::{Ask, Program},
    },
};

use super::{acquire, admitted, at_once, in_time, look, only, policy, servers};

const RESPONSE: Duration = Duration::from_secs(1);
const LIMIT: u64 = 5;

fn key() -> Key {
    Key::from(7_u64)
}

pub(super) fn of(url: impl Into<String>) -> RedisBuilder<TokenBucket> {
    Redis::<TokenBucket>::builder(url).response_timeout(RESPONSE)
}

/// Asserts that calls to a server that accepts connections and stays silent end in time.
pub(super) async fn assert_silent(store: &Redis<TokenBucket>) {
    let rule = at_once(LIMIT);
    let call = in_time(2 * RESPONSE, acquire(store, &rule, key()));
    let error = call.await.unwrap_err();
    assert!(error.is_timeout() || error.is_unavailable(), "{error:?}");
}

/// Asserts that each call to a missing server fails in time, and requests follow the policy.
pub(super) async fn assert_failures_follow_policy(store: &Redis<TokenBucket>) {
    let rule = at_once(LIMIT);
    for _ in 0..3 {
        for call in [
            in_time(2 * RESPONSE, acquire(store, &rule, key())).await,
            in_time(2 * RESPONSE, look(store, &rule, key())).await,
        ] {
            let error = call.unwrap_err();
            assert!(error.is_unavailable() || error.is_timeout(), "{error:?}");
        }
        let (open, closed) = (store.clone().fail_open(), store.clone().fail_closed());
        let ask = || [Ask::new(policy(), &rule, key(), Cost::ONE)];
        let (passed, stopped) = (open.acquire(&ask()).await, closed.acquire(&ask()).await);
        let (passed, stopped) = (only(passed.unwrap()), only(stopped.unwrap()));
        assert!(passed.is_undecided() && passed.is_admitted(), "{passed:?}");
        assert!(
            stopped.is_undecided() && !stopped.is_admitted(),
            "{stopped:?}"
        );
    }
    assert!(store.reset(policy(), &key()).await.is_err());
}

/// Asserts that each call is decided, and exactly the limit is admitted.
pub(super) async fn assert_admits_the_limit(store: &Redis<TokenBucket>) {
    assert_eq!(admitted(store, &at_once(LIMIT), key(), 8).await, LIMIT);
}

fn connections(server: &servers::Redis) -> usize {
    let clients = server.command(&["CLIENT", "LIST", "TYPE", "normal"]);
    // One of them belongs to this command.
    clients.lines().count() - 1
}

#[tokio::test]
async fn a_server_started_after_the_program_is_used() {
    let server = servers::Redis::start();
    let store: Redis<TokenBucket> = of(server.url()).connect_lazy().unwrap();
    server.pause();
    assert_silent(&store).await;
    server.kill();
    assert_failures_follow_policy(&store).await;
    server.restart();
    assert_admits_the_limit(&store).await;
    assert_eq!(connections(&server), 1);
    // A later failure is handled like any other.
    server.kill();
    assert_failures_follow_policy(&store).await;
    server.restart();
    assert_admits_the_limit(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_started_after_the_program_is_used() {
    let cluster = servers::Cluster::start();
    let nodes = cluster.nodes();
    let hosts: Vec<_> = nodes[..3]
        .iter()
        .map(|node| node.address().to_string())
        .collect();
    nodes.iter().for_each(|node| node.kill());
    let store = of(format!("redis-cluster://{}", hosts.join(","))).connect_lazy();
    let store: Redis<TokenBucket> = store.unwrap();
    assert_failures_follow_policy(&store).await;
    nodes.iter().for_each(|node| node.restart());
    cluster.settle();
    // One connection to each node, for any number of first callers.
    let first = (0..60_u64).map(|client| {
        let store = store.clone();
        let calls = async move { admitted(&store, &at_once(LIMIT), Key::from(client), 8).await };
        tokio::spawn(calls)
    });
    let first = join_all(first).await;
    assert!(first.into_iter().all(|admitted| admitted.unwrap() == LIMIT));
    for node in &nodes[..3] {
        assert_eq!(connections(node), 1, "{node:?}");
    }
    // Mistakes visible in the URL are reported before there is a connection, too.
    let other: Redis<TokenBucket> = of(format!("redis-cluster://{}", hosts[0]))
        .connect_lazy()
        .unwrap();
    let rule = at_once(LIMIT);
    let both = [1_u64, 2].map(|n| Ask::new(policy(), &rule, Key::from(n), Cost::ONE));
    let apart = other.acquire(&both).await.unwrap_err();
    assert!(
        apart
            .to_string()
            .contains("ask about each client by itself"),
        "{apart:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_started_after_the_program_are_used() {
    let group = servers::Sentinel::start();
    let all = || group.nodes().iter().chain(group.sentinels());
    all().for_each(|server| server.kill());
    let store = of(group.url("redis-sentinel://")).connect_lazy();
    let store: Redis<TokenBucket> = store.unwrap();
    assert_failures_follow_policy(&store).await;
    // Sentinels without a master are not sufficient.
    group.sentinels()[0].restart();
    let call = acquire(&store, &at_once(LIMIT), key()).await;
    let error = call.unwrap_err();
    assert!(error.is_unavailable() || error.is_timeout(), "{error:?}");
    all().for_each(|server| server.restart());
    group.settle();
    assert_admits_the_limit(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_first_calls_make_one_connection() {
    let server = servers::Redis::start();
    let loaded = || {
        let all = server.command(&["INFO", "commandstats"]);
        let line = all.lines().find(|line| line.starts_with("cmdstat_script"));
        let count = line.and_then(|line| line.split_once(":calls=")?.1.split(',').next());
        count.map_or(0, |count| count.parse::<usize>().unwrap())
    };
    let patient = of(server.url()).response_timeout(40 * RESPONSE);
    let store: Redis<TokenBucket> = patient.connect_lazy().unwrap();
    server.pause();
    let first: Vec<_> = (0..300_u64)
        .map(|n| {
            let (store, rule) = (store.clone(), at_once(LIMIT));
            tokio::spawn(async move {
                match n % 3 {
                    0 => look(&store, &rule, key()).await.map(|_| false),
                    _ => acquire(&store, &rule, key())
                        .await
                        .map(|decision| decision.is_admitted()),
                }
            })
        })
        .collect();
    sleep(RESPONSE / 10).await;
    server.resume();
    let admissions = join_all(first).await;
    let admissions = admissions.into_iter().map(|call| call.unwrap().unwrap());
    assert_eq!(
        admissions.filter(|admitted| *admitted).count() as u64,
        LIMIT
    );
    assert_eq!(connections(&server), 1);
    // The programs were checked once, and are not checked again on a new connection.
    assert_eq!(loaded(), Program::ALL.len());
    server.command(&["CONFIG", "RESETSTAT"]);
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    super::until_answered(&store, &at_once(LIMIT), key()).await;
    assert_eq!(loaded(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_first_calls_do_not_affect_later_ones() {
    let server = servers::Redis::start();
    let proxy = servers::Proxy::start(server.address());
    let patient = of(format!("redis://{}", proxy.address())).response_timeout(40 * RESPONSE);
    let store: Redis<TokenBucket> = patient.connect_lazy().unwrap();
    let rule = at_once(LIMIT);
    proxy.set_answers(servers::Flow::Hold);
    for _ in 0..2 {
        let call = timeout(RESPONSE / 10, acquire(&store, &rule, key()));
        assert!(call.await.is_err());
    }
    proxy.set_answers(servers::Flow::Forward);
    // Calls dropped before they were sent are not charged. The connection opened for them serves
    // this one.
    assert_eq!(admitted(&store, &rule, key(), 8).await, LIMIT);
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test]
async fn a_rejected_user_is_an_error_of_each_call_until_accepted() {
    let server = servers::Redis::start();
    let first = ["ACL", "SETUSER", "limiter", "on", ">p4ss", "~tollgate:*"];
    server.command(&first);
    let of_login = |login: &str| of(format!("redis://{login}@{}", server.address()));
    let store: Redis<TokenBucket> = of_login("limiter:p4ss").connect_lazy().unwrap();
    let stranger: Redis<TokenBucket> = of_login("limiter:guess").connect_lazy().unwrap();
    let by_cluster = of(format!(
        "redis-cluster://limiter:guess@{}",
        server.address()
    ));
    let of_cluster: Redis<TokenBucket> = by_cluster.clone().connect_lazy().unwrap();
    for (store, builder) in [
        (&store, of_login("limiter:p4ss")),
        (&stranger, of_login("limiter:guess")),
        (&of_cluster, by_cluster),
    ] {
        let connect = builder.connect().await.unwrap_err();
        assert!(
            connect.to_string().contains("; "),
            "what to do: {connect:?}"
        );
        for _ in 0..3 {
            let error = acquire(store, &at_once(LIMIT), key()).await.unwrap_err();
            assert_eq!(error.to_string(), connect.to_string());
            // The server runs and rejects the user.
            assert!(!error.is_unavailable() && !error.is_timeout(), "{error:?}");
        }
    }
    server.command(&["ACL", "SETUSER", "limiter", "+@all"]);
    assert_admits_the_limit(&store).await;
}

#[tokio::test]
async fn a_server_that_is_not_redis_is_an_error_of_each_call() {
    let group = servers::Sentinel::start();
    let sentinel = group.sentinels()[0].url();
    let strange = format!("redis-sentinel://{}/nobody", group.sentinels()[0].address());
    let alone = format!("redis-cluster://{}", group.master().address());
    for url in [sentinel, strange, alone] {
        let connect = of(&url).connect().await.unwrap_err();
        let store: Redis<TokenBucket> = of(&url).connect_lazy().unwrap();
        for _ in 0..3 {
            let error = acquire(&store, &at_once(LIMIT), key()).await.unwrap_err();
            assert_eq!(error.to_string(), connect.to_string(), "{url}");
        }
    }
}

#[test]
fn only_mistakes_in_the_url_are_reported_at_once() {
    let failure = |url: &str| {
        let error = Redis::<TokenBucket>::connect_lazy(url).unwrap_err();
        assert!(!error.is_unavailable() && !error.is_timeout(), "{error:?}");
        error.to_string()
    };
    for (url, part) in [
        ("http://127.0.0.1", "expected one like"),
        ("redis-sentinel://127.0.0.1", "names no master"),
        ("redis-cluster://127.0.0.1:port", ""),
    ] {
        let why = failure(url);
        assert!(why.contains(part), "{url}: {why}");
    }
    // Without a runtime, and with unknown hosts.
    for url in [
        "redis://nobody.invalid",
        "redis-cluster://nobody.invalid,127.0.0.1:1",
        "redis-sentinel://nobody.invalid/name",
    ] {
        Redis::<TokenBucket>::connect_lazy(url).unwrap();
    }
}
