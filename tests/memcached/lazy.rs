//! Stores that are made while nobody is there, and connect with their first calls.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use tollgate::{
    Cost, TokenBucket,
    store::{
        Memcached, MemcachedConnection, MemcachedConnectionBuilder, MemcachedCounters, Store,
        StoreError, StoreExt,
        driver::{Ask, CompareAndSwap, Increment},
    },
};

use super::{
    acquire, admitted, at_once, counters, in_time, key, look, only, policy, servers, stat, swaps,
    url, window,
};

const RESPONSE: Duration = Duration::from_secs(1);
const LIMIT: u64 = 5;

fn of(address: std::net::SocketAddr) -> MemcachedConnectionBuilder {
    MemcachedConnection::builder(url(address)).response_timeout(RESPONSE)
}

/// Of a store whose server is gone: each call fails in time, and requests meet the policy.
async fn fails_by_policy<Rule, S>(store: &S, rule: &Rule)
where
    S: Store<Rule, Error = StoreError> + Clone,
{
    for _ in 0..3 {
        for call in [
            in_time(2 * RESPONSE, acquire(store, rule, key())).await,
            in_time(2 * RESPONSE, look(store, rule, key())).await,
        ] {
            let error = call.unwrap_err();
            assert!(error.is_unavailable() || error.is_timeout(), "{error:?}");
        }
        let (open, closed) = (store.clone().fail_open(), store.clone().fail_closed());
        let ask = || [Ask::new(policy(), rule, key(), Cost::ONE)];
        let (passed, stopped) = (open.acquire(&ask()).await, closed.acquire(&ask()).await);
        let (passed, stopped) = (only(passed.unwrap()), only(stopped.unwrap()));
        assert!(passed.is_undecided() && passed.is_admitted(), "{passed:?}");
        assert!(
            stopped.is_undecided() && !stopped.is_admitted(),
            "{stopped:?}"
        );
    }
}

#[tokio::test]
async fn a_server_started_after_the_program_is_used() {
    let server = servers::Memcached::start();
    let connection = of(server.address()).connect_lazy().unwrap();
    let (swaps, counters) = (swaps(&connection), counters(&connection));
    server.pause();
    let (rule, windows) = (at_once(LIMIT), window(LIMIT));
    for call in [
        in_time(2 * RESPONSE, look(&swaps, &rule, key())).await,
        in_time(2 * RESPONSE, look(&counters, &windows, key())).await,
    ] {
        assert!(call.unwrap_err().is_timeout());
    }
    for _ in 0..2 {
        server.kill();
        fails_by_policy(&swaps, &rule).await;
        fails_by_policy(&counters, &windows).await;
        server.restart();
        assert_eq!(admitted(&swaps, &rule, key(), 8).await, LIMIT);
        assert_eq!(admitted(&counters, &windows, key(), 8).await, LIMIT);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_first_calls_make_no_more_connections_than_there_shall_be() {
    let server = servers::Memcached::start();
    let builder = of(server.address()).response_timeout(40 * RESPONSE);
    let connection = builder.connections(2).connect_lazy().unwrap();
    let before = stat(&server, "stats", "total_connections");
    server.pause();
    let first: Vec<_> = (0..300)
        .map(|n| {
            let (swaps, counters) = (swaps(&connection), counters(&connection));
            tokio::spawn(async move {
                match n % 2 {
                    0 => acquire(&swaps, &at_once(LIMIT), key()).await,
                    _ => acquire(&counters, &window(LIMIT), key()).await,
                }
            })
        })
        .collect();
    tokio::time::sleep(RESPONSE / 10).await;
    server.resume();
    let decided = join_all(first).await.into_iter();
    let admissions = decided.filter(|call| call.as_ref().unwrap().as_ref().unwrap().is_admitted());
    // Each of the stores has a limit of its own: a bucket, and a window.
    assert_eq!(admissions.count() as u64, 2 * LIMIT);
    // And the one that asks.
    assert_eq!(stat(&server, "stats", "total_connections"), before + 3);
}

#[tokio::test]
async fn first_calls_that_are_dropped_hinder_nobody() {
    const KEY: &[u8] = b"tollgate:2:{a}:api";
    let server = servers::Memcached::start();
    let proxy = servers::Proxy::start(server.address());
    let builder = of(proxy.address()).response_timeout(40 * RESPONSE);
    let connection = builder.connect_lazy().unwrap();
    let keys = [KEY.into()];
    proxy.set_answers(servers::Flow::Hold);
    let deadline = RESPONSE / 10;
    assert!(timeout(deadline, connection.load(KEY)).await.is_err());
    assert!(timeout(deadline, connection.read(&keys)).await.is_err());
    proxy.set_answers(servers::Flow::Forward);
    // The first call's connection carries this one.
    assert!(connection.load(KEY).await.unwrap().value.is_none());
    assert_eq!(proxy.accepted(), 1);
}

#[test]
fn what_is_wrong_with_the_url_is_told_at_once_and_nothing_else() {
    for wrong in ["redis://127.0.0.1", "memcached://a:1,b:1"] {
        let swaps = Memcached::<TokenBucket>::connect_lazy(wrong);
        let counters = MemcachedCounters::<tollgate::FixedWindow>::connect_lazy(wrong);
        for error in [swaps.unwrap_err(), counters.unwrap_err()] {
            assert!(!error.is_unavailable() && !error.is_timeout(), "{error:?}");
            let why = error.to_string();
            assert!(why.contains("expected `memcached://host:port`"), "{why}");
        }
    }
    // Without a runtime, and of a host that nobody knows.
    Memcached::<TokenBucket>::connect_lazy("memcached://nobody.invalid").unwrap();
}
