//! The effects of each fault of a server.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use tollgate::{
    Cost, FixedWindow, Policy, SlidingLog, TokenBucket,
    key::Key,
    store::{
        Redis, Store, StoreExt,
        driver::{Ask, Settlement},
    },
};

use super::{
    acquire, admitted, at_once, cannot_save, in_time, look, policy, save, servers, store,
    until_answered,
};

const RESPONSE: Duration = Duration::from_millis(300);

async fn impatient(url: String) -> Redis<TokenBucket> {
    let builder = Redis::<TokenBucket>::builder(url).response_timeout(RESPONSE);
    builder.connect().await.unwrap()
}

fn key() -> Key {
    Key::from(7_u64)
}

#[tokio::test]
async fn a_missing_server_is_a_specific_error() {
    let server = servers::Redis::start();
    let url = server.url();
    drop(server);
    let error = Redis::<TokenBucket>::connect(url).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    let error = Redis::<TokenBucket>::connect("http://127.0.0.1")
        .await
        .unwrap_err();
    assert!(!error.is_unavailable(), "{error:?}");
    let error = Redis::<TokenBucket>::connect("redis-sentinel://127.0.0.1")
        .await
        .unwrap_err();
    let why = error.to_string();
    assert!(why.contains("names no master"), "{why}");
}

#[tokio::test]
async fn flushed_programs_are_loaded_again() {
    let server = servers::Redis::start();
    let (store, rule) = (store(server.url()).await, at_once(10));
    assert_eq!(admitted(&store, &rule, key(), 1).await, 1);
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(admitted(&store, &rule, key(), 1).await, 1);
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(
        look(&store, &rule, key()).await.unwrap().remaining(),
        Some(8)
    );
    server.command(&["SCRIPT", "FLUSH"]);
    store.reset(policy(), &key()).await.unwrap();
    assert_eq!(
        look(&store, &rule, key()).await.unwrap().remaining(),
        Some(10)
    );
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_costs_no_call() {
    let server = servers::Redis::start();
    let (store, rule) = (store(server.url()).await, at_once(10));
    for left in (0..5).rev() {
        let decision = acquire(&store, &rule, key()).await.unwrap();
        assert_eq!(decision.remaining(), Some(left + 5));
        let connections = || {
            server
                .command(&["CLIENT", "LIST", "TYPE", "normal"])
                .lines()
                .count()
        };
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        servers::wait_until(
            "only this test's own connection",
            RESPONSE * 10,
            || match connections() {
                1 => Ok(()),
                more => Err(more.to_string()),
            },
        );
        // The store must notice the closed connection before the next call.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_killed_under_load_admit_at_most_the_limit() {
    let server = servers::Redis::start();
    let (store, rule) = (store(server.url()).await, at_once(1000));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let (mut admitted, mut errors) = (0, 0);
                for _ in 0..50 {
                    match acquire(&store, &rule, key()).await {
                        Ok(decision) => admitted += u64::from(decision.is_admitted()),
                        Err(error) => {
                            assert!(error.is_unavailable(), "{error:?}");
                            errors += 1;
                        }
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                (admitted, errors)
            })
        })
        .collect();
    for _ in 0..10 {
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (mut admitted_in_all, mut errors_in_all) = (0, 0);
    for task in tasks {
        let (admitted, errors) = task.await.unwrap();
        admitted_in_all += admitted;
        errors_in_all += errors;
    }
    assert_eq!(admitted_in_all + errors_in_all, 400);
    // A call whose answer was lost may have been charged: the charges are never fewer than the
    // admissions.
    let left = look(&store, &rule, key())
        .await
        .unwrap()
        .remaining()
        .unwrap();
    let charged = 1000 - left;
    assert!(
        (admitted_in_all..=400).contains(&charged),
        "{admitted_in_all}, {charged}"
    );
}

#[tokio::test]
async fn a_killed_server_is_an_immediate_error_and_restarts_empty() {
    let server = servers::Redis::start();
    let (store, rule) = (impatient(server.url()).await, at_once(5));
    assert_eq!(admitted(&store, &rule, key(), 10).await, 5);
    server.kill();
    for _ in 0..20 {
        let error = in_time(RESPONSE, acquire(&store, &rule, key()))
            .await
            .unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        let error = in_time(RESPONSE, look(&store, &rule, key()))
            .await
            .unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
    }
    server.restart();
    // The next call succeeds. Without persistence the server starts empty.
    assert_eq!(admitted(&store, &rule, key(), 10).await, 5);
}

#[tokio::test]
async fn a_restart_with_persistence_keeps_all_charges() {
    let server = servers::Redis::options().durable().start();
    let (store, rule) = (store(server.url()).await, at_once(5));
    assert_eq!(admitted(&store, &rule, key(), 3).await, 3);
    server.restart();
    // A look, because the store may not have noticed yet that its connection is closed.
    let _ = look(&store, &rule, key()).await;
    assert_eq!(admitted(&store, &rule, key(), 10).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_to_a_silent_server_end_at_the_timeout() {
    let server = servers::Redis::start();
    let (store, rule) = (impatient(server.url()).await, at_once(5));
    assert_eq!(admitted(&store, &rule, key(), 1).await, 1);
    server.pause();
    for round in 0..2 {
        // Far more calls than go out at once: none waits for those before it.
        let calls: Vec<_> = (0..600)
            .map(|n| {
                let store = store.clone();
                tokio::spawn(async move {
                    let call = async {
                        match n % 3 {
                            0 => look(&store, &rule, key()).await,
                            _ => acquire(&store, &rule, key()).await,
                        }
                    };
                    // One timeout to connect, and one for the answer.
                    in_time(2 * RESPONSE, call).await
                })
            })
            .collect();
        for call in calls {
            let error = call.await.unwrap().unwrap_err();
            assert!(
                error.is_timeout() || error.is_unavailable(),
                "{round}: {error:?}"
            );
        }
    }
    // A deadline set by the user.
    let deadline = Duration::from_millis(20);
    let late = in_time(deadline, timeout(deadline, acquire(&store, &rule, key()))).await;
    assert!(late.is_err());
    server.resume();
    assert!(until_answered(&store, &rule, key()).await <= 2);
    // The calls before the silence may be charged. The limit is otherwise unchanged.
    assert!(admitted(&store, &rule, key(), 10).await <= 3);
    assert_eq!(admitted(&store, &rule, Key::from(8_u64), 10).await, 5);
}

#[tokio::test]
async fn a_connection_that_drops_packets_is_closed() {
    let server = servers::Redis::start();
    let proxy = servers::Proxy::start(server.address());
    let (store, rule) = (
        impatient(format!("redis://{}", proxy.address())).await,
        at_once(5),
    );
    assert_eq!(admitted(&store, &rule, key(), 1).await, 1);
    proxy.set_flow(servers::Flow::Swallow);
    let error = in_time(RESPONSE, acquire(&store, &rule, key()))
        .await
        .unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    proxy.set_flow(servers::Flow::Forward);
    // A slow proxy may have forwarded the call after all.
    let left = admitted(&store, &rule, key(), 10).await;
    assert!((3..=4).contains(&left), "{left}");
}

#[tokio::test]
async fn a_full_server_is_an_error_and_looks_still_work() {
    let server = servers::Redis::start();
    let (store, rule) = (store(server.url()).await, at_once(5));
    assert_eq!(admitted(&store, &rule, key(), 3).await, 3);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for n in 7_u64..12 {
        let error = acquire(&store, &rule, Key::from(n)).await.unwrap_err();
        assert!(error.is_unwritten(), "{error:?}");
        let why = error.to_string();
        assert!(why.contains("OOM"), "{why}");
    }
    assert_eq!(
        look(&store, &rule, key()).await.unwrap().remaining(),
        Some(2)
    );
    // The wrapper decides what a user gets.
    let open = store.clone().fail_open();
    let ask = Ask::new(policy(), &rule, key(), Cost::ONE);
    assert!(open.acquire(&[ask]).await.unwrap().is_admitted());
    assert_eq!(open.failures(), 1);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(admitted(&store, &rule, key(), 10).await, 2);
}

#[tokio::test]
async fn a_read_only_server_is_an_error_and_looks_still_work() {
    let server = servers::Redis::start();
    let (store, rule) = (store(server.url()).await, at_once(5));
    assert_eq!(admitted(&store, &rule, key(), 3).await, 3);
    let config = |name: &str, value: &str| server.command(&["CONFIG", "SET", name, value]);
    let refused_snapshot = cannot_save(&server);
    let refused = async |code: &str| {
        let error = acquire(&store, &rule, key()).await.unwrap_err();
        let why = error.to_string();
        assert!(why.contains(code), "{why}");
        let looked = look(&store, &rule, key()).await.unwrap();
        assert_eq!(looked.remaining(), Some(2));
    };
    refused("MISCONF").await;
    std::fs::remove_dir(&refused_snapshot).unwrap();
    save(&server, "ok");
    config("min-replicas-to-write", "1");
    refused("NOREPLICAS").await;
    config("min-replicas-to-write", "0");
    assert_eq!(admitted(&store, &rule, key(), 10).await, 2);
}

#[tokio::test]
async fn missing_permissions_are_named_in_the_error() {
    let server = servers::Redis::start();
    let user = |more: &[&str]| {
        let first = ["ACL", "SETUSER", "limiter", "on", ">p4ss", "~tollgate:*"];
        server.command(&[&first, more].concat());
    };
    let url = |login: &str| format!("redis://{login}@{}", server.address());
    let failure = async |login: &str| {
        let error = Redis::<TokenBucket>::connect(url(login)).await.unwrap_err();
        error.to_string()
    };
    user(&["+ping"]);
    let why = failure("limiter:p4ss").await;
    assert!(why.contains("+info +script|load"), "{why}");
    let why = failure("limiter:guess").await;
    assert!(
        why.contains("server's user and password into the URL"),
        "{why}"
    );
    // The permissions in the documentation suffice for everything that a store does.
    user(&[
        "+info",
        "+script|load",
        "+evalsha",
        "+eval",
        "+time",
        "+get",
        "+getrange",
        "+mget",
        "+pttl",
        "+set",
        "+setrange",
        "+pexpire",
        "+pexpireat",
        "+del",
    ]);
    let store: Redis<TokenBucket> = Redis::connect(url("limiter:p4ss")).await.unwrap();
    let rule = at_once(5);
    assert_eq!(admitted(&store, &rule, key(), 8).await, 5);
    // Beside a state of another kind.
    let window = "fixed-window 3/365d".parse().unwrap();
    let windows: Redis<FixedWindow> = Redis::connect(url("limiter:p4ss")).await.unwrap();
    for admitted in [true, true, true, false] {
        let ask = Ask::new(policy(), &window, key(), Cost::ONE);
        let decisions = windows.acquire(&[ask]).await.unwrap();
        assert_eq!(decisions.is_admitted(), admitted);
    }
    // A log lies under a key of its own.
    let log = "sliding-log 3/1d".parse().unwrap();
    let logs: Redis<SlidingLog> = Redis::connect(url("limiter:p4ss")).await.unwrap();
    let of_log = || [Ask::new(policy(), &log, key(), Cost::ONE)];
    for admitted in [true, true, true, false] {
        let decisions = logs.acquire(&of_log()).await.unwrap();
        assert_eq!(decisions.is_admitted(), admitted);
    }
    let charged = acquire(&store, &rule, Key::from(8_u64)).await.unwrap();
    let settlement = Settlement::new(
        policy(),
        &rule,
        Key::from(8_u64),
        { charged }.take_charge().unwrap(),
        3,
    )
    .unwrap();
    store.settle(vec![settlement]).await.unwrap();
    let both = ["api", "hour"].map(Policy::new);
    let asks = both
        .each_ref()
        .map(|policy| Ask::new(policy, &rule, Key::from(8_u64), Cost::ONE));
    assert!(store.acquire(&asks).await.unwrap().is_admitted());
    assert_eq!(
        look(&store, &rule, Key::from(8_u64))
            .await
            .unwrap()
            .remaining(),
        Some(1)
    );
    server.command(&["SCRIPT", "FLUSH"]);
    store.reset(policy(), &key()).await.unwrap();
    assert_eq!(
        look(&store, &rule, key()).await.unwrap().remaining(),
        Some(5)
    );

    for _ in 0..2 {
        assert!(logs.acquire(&of_log()).await.unwrap().is_admitted());
    }
    server.command(&["ACL", "SETUSER", "limiter", "-getrange"]);
    let error = logs.acquire(&of_log()).await.unwrap_err().to_string();
    assert!(error.contains("+getrange"), "{error}");
    assert_eq!(logs.stats().healed, 0);

    // If scripts may not read, the unreadable value is not treated as damaged.
    server.command(&["ACL", "SETUSER", "limiter", "-get", "-mget"]);
    let lone = acquire(&store, &rule, key()).await.unwrap_err();
    let several = store.acquire(&asks).await.unwrap_err();
    let equal = join_all((0..8_u64).map(|n| acquire(&store, &rule, Key::from(n))));
    let others = equal.await.into_iter().map(Result::unwrap_err);
    for error in others.chain([lone, several]) {
        let why = error.to_string();
        assert!(why.contains("+get +getrange +mget"), "{why}");
    }
    assert_eq!(store.stats().healed, 0);
    // Or without a password.
    let locked = servers::Redis::options().password("s3cret").start();
    let error = Redis::<TokenBucket>::connect(format!("redis://{}", locked.address())).await;
    let error = error.unwrap_err();
    let why = error.to_string();
    assert!(
        why.contains("server's user and password into the URL"),
        "{why}"
    );
}

/// No call fails, and an evicted client starts over.
#[tokio::test]
async fn evicted_keys_start_over() {
    let server = servers::Redis::start();
    let (store, rule) = (store(server.url()).await, at_once(5));
    assert_eq!(admitted(&store, &rule, key(), 8).await, 5);
    let used: u64 = server.info("memory", "used_memory").parse().unwrap();
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let room = (used + (1 << 20)).to_string();
    server.command(&["CONFIG", "SET", "maxmemory", &room]);
    let name = server.keys().pop().unwrap();
    for client in 1000_u64.. {
        let decision = acquire(&store, &rule, Key::from(client)).await.unwrap();
        assert_eq!(decision.remaining(), Some(4));
        if client % 500 == 0 && !server.keys().contains(&name) {
            break;
        }
        assert!(client < 100_000, "no key was evicted");
    }
    assert_eq!(admitted(&store, &rule, key(), 8).await, 5);
}

#[tokio::test]
async fn a_server_that_became_a_replica_is_disconnected() {
    let master = servers::Redis::start();
    let server = servers::Redis::start();
    let (store, rule) = (store(server.url()).await, at_once(5));
    assert_eq!(admitted(&store, &rule, key(), 1).await, 1);
    server.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    server.wait_for_info(
        "replication",
        "master_link_status",
        "up",
        Duration::from_secs(20),
    );
    let connected = || -> u64 {
        server
            .info("stats", "total_connections_received")
            .parse()
            .unwrap()
    };
    let before = connected();
    for _ in 0..6 {
        let error = acquire(&store, &rule, key()).await.unwrap_err();
        assert!(error.is_unwritten(), "{error:?}");
        // A connection is kept for 100 ms, so each second call makes one.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    // Each connection checked the server's role anew, besides the two commands of this test.
    assert!(connected() >= before + 3, "{before}, {}", connected());
    server.command(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(admitted(&store, &rule, key(), 10).await, 5);
}

#[tokio::test]
async fn a_server_busy_above_its_threshold_is_unavailable_at_once() {
    let server = servers::Redis::start();
    let (store, rule) = (impatient(server.url()).await, at_once(5));
    server.command(&["CONFIG", "SET", "busy-reply-threshold", "1"]);
    let mut other = server.connect().unwrap();
    other.send(&["EVAL", "while true do end", "0"]).unwrap();
    servers::wait_until("a busy server", RESPONSE * 20, || {
        match server.ask(&["PING"]) {
            Ok(servers::Reply::Error(busy)) if busy.starts_with("BUSY") => Ok(()),
            answer => Err(format!("{answer:?}")),
        }
    });
    for _ in 0..5 {
        // Reported by the server. Silence would be a timeout.
        let error = acquire(&store, &rule, key()).await.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
    }
    server.command(&["SCRIPT", "KILL"]);
    let ping = || server.ask(&["PING"]).map_err(|error| error.to_string());
    servers::wait_until("an idle server", RESPONSE * 20, || match ping()? {
        servers::Reply::Status(_) => Ok(()),
        busy => Err(busy.to_string()),
    });
    assert_eq!(admitted(&store, &rule, key(), 10).await, 5);
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

#[test]
fn a_runtime_that_ends_does_not_break_another() {
    let (server, rule) = (servers::Redis::start(), at_once(5));
    let (first, second) = (runtime(), runtime());
    let store = first.block_on(store(server.url()));
    server.pause();
    // As many requests as go out at once, and a waiting one, when their runtime ends.
    first.block_on(async {
        for _ in 0..3 {
            let store = store.clone();
            tokio::spawn(async move { acquire(&store, &rule, key()).await });
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    drop(first);
    server.resume();
    let call = acquire(&store, &rule, Key::from(8_u64));
    let decision = second.block_on(async { timeout(20 * RESPONSE, call).await });
    assert_eq!(decision.unwrap().unwrap().remaining(), Some(4));
    // Without a runtime no task can send it.
    let ask = Ask::new(policy(), &rule, key(), Cost::ONE);
    let tollgate::store::driver::Check::Ready(Err(error)) = store.acquire(&[ask]) else {
        panic!("expected an error at once");
    };
    // A mistake of the program, not of the server.
    assert!(error.is_unsupported(), "{error:?}");
    assert!(error.to_string().contains("within a runtime"), "{error}");
}

/// It is kept, but drives none of its tasks after `block_on` has returned.
#[test]
fn a_runtime_that_is_not_driven_keeps_no_other_from_connecting() {
    let (server, rule) = (servers::Redis::start(), at_once(5));
    let (first, second) = (runtime(), runtime());
    let builder = Redis::<TokenBucket>::builder(server.url()).response_timeout(RESPONSE);
    let store = builder.connect_lazy().unwrap();
    server.pause();
    let call = async { timeout(RESPONSE / 6, acquire(&store, &rule, key())).await };
    assert!(first.block_on(call).is_err());
    server.resume();
    let call = async { timeout(20 * RESPONSE, acquire(&store, &rule, key())).await };
    let decision = second.block_on(call).unwrap().unwrap();
    assert_eq!(decision.remaining(), Some(4));
}

#[test]
fn a_runtime_that_is_not_driven_keeps_no_other_from_finding_a_new_master() {
    let (cluster, rule) = (servers::Cluster::start(), at_once(5));
    let (first, second) = (runtime(), runtime());
    let hosts: Vec<_> = cluster
        .nodes()
        .iter()
        .map(|node| node.address().to_string())
        .collect();
    let url = format!("redis-cluster://{}", hosts.join(","));
    let store = first.block_on(impatient(url));
    let master = &cluster.nodes()[0];
    let is_of_master = |key: &Key| first.block_on(acquire(&store, &rule, *key)).is_err();
    // Its renewals begin on the first runtime, with the calls that fail.
    let keys: Vec<Key> = (0..60_u64).map(Key::from).collect();
    assert!(!keys.iter().any(is_of_master));
    cluster.failover(master);
    let lost = keys.iter().find(|key| is_of_master(key));
    let lost = *lost.expect("expected a key of the master");
    let found = second
        .block_on(async { timeout(20 * RESPONSE, until_answered(&store, &rule, lost)).await });
    assert!(found.is_ok());
}
