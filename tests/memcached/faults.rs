//! Servers that restart, forget, or are full; connections that end.

use std::time::Duration;

use tollgate::{
    Cost,
    key::Key,
    store::{
        Backend, CircuitBreakerConfig, MemcachedConnection, Store, StoreError, StoreExt,
        driver::Ask,
    },
};

use super::{
    acquire, admitted, at_once, connect, counters, in_time, key, look, policy, servers, stat,
    swaps, url, window,
};

const RESPONSE: Duration = Duration::from_millis(300);

async fn impatient(address: std::net::SocketAddr) -> MemcachedConnection {
    let builder = MemcachedConnection::builder(url(address)).response_timeout(RESPONSE);
    builder.connect().await.unwrap()
}

#[tokio::test]
async fn a_flush_is_a_fresh_start() {
    let server = servers::Memcached::start();
    let connection = connect(&server).await;
    let (swaps, counters) = (swaps(&connection), counters(&connection));
    for _ in 0..3 {
        assert_eq!(admitted(&swaps, &at_once(5), key(), 9).await, 5);
        assert_eq!(admitted(&counters, &window(5), key(), 9).await, 5);
        assert_eq!(server.command("flush_all"), "OK");
    }
}

#[tokio::test]
async fn a_killed_server_is_an_immediate_error_and_restarts_empty() {
    let server = servers::Memcached::start();
    let connection = impatient(server.address()).await;
    let (swaps, counters) = (swaps(&connection), counters(&connection));
    assert_eq!(admitted(&swaps, &at_once(5), key(), 9).await, 5);
    assert_eq!(admitted(&counters, &window(5), key(), 9).await, 5);
    server.kill();
    for _ in 0..20 {
        let error = in_time(RESPONSE, acquire(&swaps, &at_once(5), key()))
            .await
            .unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        // It may know of the refusal; a look asks.
        let error = in_time(RESPONSE, look(&counters, &window(5), key()))
            .await
            .unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
    }
    server.restart();
    // The very next call, and all begins afresh.
    assert_eq!(admitted(&swaps, &at_once(5), key(), 9).await, 5);
    assert_eq!(
        admitted(&counters, &window(5), Key::from(8_u64), 9).await,
        5
    );
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_costs_no_call() {
    let server = servers::Memcached::start();
    let proxy = servers::Proxy::start(server.address());
    let connection = impatient(proxy.address()).await;
    let (swaps, counters) = (swaps(&connection), counters(&connection));
    for left in (5..10).rev() {
        let decision = acquire(&swaps, &at_once(10), key()).await.unwrap();
        assert_eq!(decision.remaining(), Some(left));
        let decision = acquire(&counters, &window(10), key()).await.unwrap();
        assert_eq!(decision.remaining(), Some(left));
        proxy.cut();
        // This side must hear of it before the next call.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(proxy.accepted(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_cut_under_load_never_admit_too_much() {
    let server = servers::Memcached::start();
    let proxy = servers::Proxy::start(server.address());
    let connection = impatient(proxy.address()).await;
    let (by_swaps, by_counters) = (swaps(&connection), counters(&connection));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (swaps, counters) = (by_swaps.clone(), by_counters.clone());
            tokio::spawn(async move {
                let (mut admitted, mut errors) = ([0, 0], 0);
                for _ in 0..50 {
                    let both = [
                        acquire(&swaps, &at_once(1000), key()).await,
                        acquire(&counters, &window(1000), key()).await,
                    ];
                    for (admitted, answer) in admitted.iter_mut().zip(both) {
                        match answer {
                            Ok(decision) => *admitted += u64::from(decision.is_admitted()),
                            Err(error) => {
                                assert!(error.is_unavailable() || error.is_timeout(), "{error:?}");
                                errors += 1;
                            }
                        }
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                (admitted, errors)
            })
        })
        .collect();
    for _ in 0..10 {
        tokio::task::block_in_place(|| proxy.cut());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (mut in_all, mut errors_in_all) = ([0, 0], 0);
    for task in tasks {
        let (admitted, errors) = task.await.unwrap();
        in_all = [in_all[0] + admitted[0], in_all[1] + admitted[1]];
        errors_in_all += errors;
    }
    assert_eq!(in_all[0] + in_all[1] + errors_in_all, 800);
    // A call whose answer was lost may have been charged: more is charged than was admitted, never
    // less, and none twice.
    let left = [
        look(&by_swaps, &at_once(1000), key()).await.unwrap(),
        look(&by_counters, &window(1000), key()).await.unwrap(),
    ];
    for (admitted, left) in in_all.into_iter().zip(left) {
        let charged = 1000 - left.remaining().unwrap();
        assert!((admitted..=400).contains(&charged), "{admitted}, {charged}");
    }
}

#[tokio::test]
async fn a_full_server_evicts_and_an_evicted_client_begins_afresh() {
    let server = servers::Memcached::options().megabytes(2).start();
    let connection = connect(&server).await;
    let (swaps, counters) = (swaps(&connection), counters(&connection));
    const CLIENTS: u64 = 200;
    let known = async || {
        let mut sum = 0;
        for client in 0..CLIENTS {
            sum += admitted(&swaps, &at_once(1), Key::from(client), 1).await;
            sum += admitted(&counters, &window(1), Key::from(client), 1).await;
        }
        sum
    };
    assert_eq!(known().await, 2 * CLIENTS);
    let mut newcomer = CLIENTS;
    while stat(&server, "stats", "evictions") < 20_000 {
        for _ in 0..1000 {
            newcomer += 1;
            let client = Key::from(newcomer);
            assert_eq!(admitted(&swaps, &at_once(1), client, 1).await, 1);
            assert_eq!(admitted(&counters, &window(1), client, 1).await, 1);
        }
        assert!(newcomer < 200_000, "it has room for all");
    }
    assert!(known().await > CLIENTS, "nobody was evicted");
}

#[tokio::test]
async fn a_full_server_that_may_not_evict_is_an_error() {
    let server = servers::Memcached::options()
        .megabytes(2)
        .no_eviction()
        .start();
    let connection = connect(&server).await;
    let store = swaps(&connection);
    let by_counters = counters(&connection);
    assert_eq!(admitted(&store, &at_once(5), key(), 9).await, 5);
    assert_eq!(admitted(&by_counters, &window(5), key(), 9).await, 5);
    let mut errors = [None, None];
    for client in 100..200_000_u64 {
        let client = Key::from(client);
        if errors[0].is_none() {
            errors[0] = acquire(&store, &at_once(5), client).await.err();
        }
        if errors[1].is_none() {
            errors[1] = acquire(&by_counters, &window(5), client).await.err();
        }
        if errors.iter().all(Option::is_some) {
            break;
        }
    }
    for error in errors {
        let error = error.unwrap_or_else(|| panic!("the server has room for all"));
        assert!(error.is_unwritten(), "{error:?}");
        assert!(error.to_string().contains("-m"), "{}", error.to_string());
    }
    // Who was known is still refused, and the connection was not given up.
    assert_eq!(admitted(&store, &at_once(5), key(), 3).await, 0);
    assert_eq!(admitted(&by_counters, &window(5), key(), 3).await, 0);
    assert_eq!(stat(&server, "stats", "curr_connections"), 2);
    // The wrapper says what a user gets.
    let open = store.clone().fail_open();
    let rule = at_once(5);
    let ask = Ask::new(policy(), &rule, Key::from(1_000_000_u64), Cost::ONE);
    assert!(open.acquire(&[ask]).await.unwrap().is_admitted());
    assert_eq!((open.failures(), open.unwritten()), (1, 1));
    // No number of such calls opens a breaker, behind which the known client would be admitted.
    refuses_behind_a_breaker(store, &rule).await;
    refuses_behind_a_breaker(by_counters, &window(5)).await;
}

async fn refuses_behind_a_breaker<S, Rule>(store: S, rule: &Rule)
where
    S: Store<Rule, Error = StoreError> + Backend<Error = StoreError>,
{
    let store = store
        .circuit_breaker(CircuitBreakerConfig::new())
        .fail_open();
    for call in 0..60_u64 {
        let known = call % 3 == 0;
        let client = if known {
            key()
        } else {
            Key::from(2_000_000 + call)
        };
        let ask = Ask::new(policy(), rule, client, Cost::ONE);
        let admitted = store.acquire(&[ask]).await.unwrap().is_admitted();
        assert_eq!(admitted, !known, "call {call}");
    }
    assert_eq!(store.get_ref().opened(), 0);
}

#[tokio::test]
async fn too_many_connections_are_an_error_that_passes() {
    let server = servers::Memcached::options()
        .argument("-c")
        .argument("20")
        .argument("-t")
        .argument("1")
        .start();
    let mut connections = Vec::new();
    let error = loop {
        let builder =
            MemcachedConnection::builder(url(server.address())).response_timeout(RESPONSE);
        match builder.connect().await {
            Ok(connection) => connections.push(connection),
            Err(error) => break error,
        }
        assert!(connections.len() < 40, "it took them all");
    };
    assert!(error.is_unavailable() || error.is_timeout(), "{error:?}");
    // Those that it has go on.
    let first = swaps(&connections[0]);
    assert_eq!(admitted(&first, &at_once(5), key(), 9).await, 5);
}
