//! Stores that are made while nobody is there, and connect with their first calls.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};
use tollgate::{
    Cost, TokenBucket,
    key::Key,
    store::{Ask, Program, Redis, RedisBuilder, Store, StoreExt},
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

/// Of a store whose server takes connections, and says nothing: a call is given up in time.
pub(super) async fn is_silent(store: &Redis<TokenBucket>) {
    let rule = at_once(LIMIT);
    let call = in_time(2 * RESPONSE, acquire(store, &rule, key()));
    let error = call.await.unwrap_err();
    assert!(error.is_timeout() || error.is_unavailable(), "{error:?}");
}

/// Of a store whose server is gone: each call fails in time, and requests meet the policy.
pub(super) async fn fails_by_policy(store: &Redis<TokenBucket>) {
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

/// Each call is decided, and exactly the limit is admitted.
pub(super) async fn admits_the_limit(store: &Redis<TokenBucket>) {
    assert_eq!(admitted(store, &at_once(LIMIT), key(), 8).await, LIMIT);
}

fn connections(server: &servers::Redis) -> usize {
    let clients = server.command(&["CLIENT", "LIST", "TYPE", "normal"]);
    // One of them asks.
    clients.lines().count() - 1
}

#[tokio::test]
async fn a_server_that_comes_after_the_program() {
    let server = servers::Redis::start();
    let store: Redis<TokenBucket> = of(server.url()).connect_lazy().unwrap();
    server.pause();
    is_silent(&store).await;
    server.kill();
    fails_by_policy(&store).await;
    server.restart();
    admits_the_limit(&store).await;
    assert_eq!(connections(&server), 1);
    // And again, as any other.
    server.kill();
    fails_by_policy(&store).await;
    server.restart();
    admits_the_limit(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_comes_after_the_program() {
    let cluster = servers::Cluster::start();
    let nodes = cluster.nodes();
    let hosts: Vec<_> = nodes[..3]
        .iter()
        .map(|node| node.address().to_string())
        .collect();
    nodes.iter().for_each(|node| node.kill());
    let store = of(format!("redis-cluster://{}", hosts.join(","))).connect_lazy();
    let store: Redis<TokenBucket> = store.unwrap();
    fails_by_policy(&store).await;
    nodes.iter().for_each(|node| node.restart());
    cluster.settle();
    // One connection to each node, however many ask first.
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
    // What is known from the URL holds before there is a connection, too.
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
async fn sentinels_that_come_after_the_program() {
    let group = servers::Sentinel::start();
    let all = || group.nodes().iter().chain(group.sentinels());
    all().for_each(|server| server.kill());
    let store = of(group.url("redis-sentinel://")).connect_lazy();
    let store: Redis<TokenBucket> = store.unwrap();
    fails_by_policy(&store).await;
    // Sentinels alone lead nowhere.
    group.sentinels()[0].restart();
    let call = acquire(&store, &at_once(LIMIT), key()).await;
    let error = call.unwrap_err();
    assert!(error.is_unavailable() || error.is_timeout(), "{error:?}");
    all().for_each(|server| server.restart());
    group.settle();
    admits_the_limit(&store).await;
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
    // It was looked at once, and is not again when the connection is made anew.
    assert_eq!(loaded(), Program::ALL.len());
    server.command(&["CONFIG", "RESETSTAT"]);
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    super::until_answered(&store, &at_once(LIMIT), key()).await;
    assert_eq!(loaded(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_calls_that_are_dropped_hinder_nobody() {
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
    // What was dropped before it went out is not charged, and the first call's connection carries this one.
    assert_eq!(admitted(&store, &rule, key(), 8).await, LIMIT);
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test]
async fn whom_the_server_refuses_is_told_by_each_call_until_it_does_not() {
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
            // It is there, and says no.
            assert!(!error.is_unavailable() && !error.is_timeout(), "{error:?}");
        }
    }
    server.command(&["ACL", "SETUSER", "limiter", "+@all"]);
    admits_the_limit(&store).await;
}

#[tokio::test]
async fn who_is_no_server_is_told_by_each_call() {
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
fn what_is_wrong_with_the_url_is_told_at_once_and_nothing_else() {
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
    // Without a runtime, and of hosts that nobody knows.
    for url in [
        "redis://nobody.invalid",
        "redis-cluster://nobody.invalid,127.0.0.1:1",
        "redis-sentinel://nobody.invalid/name",
    ] {
        Redis::<TokenBucket>::connect_lazy(url).unwrap();
    }
}
