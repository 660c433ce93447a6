//! Servers that do not answer, calls that nobody waits for, and runtimes that end.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate::{
    key::Key,
    store::{
        MemcachedConnection, Store,
        driver::{Ask, Check, Increment},
    },
};

use super::{
    acquire, admitted, at_once, connect, counters, in_time, key, look, policy, servers, swaps, url,
    window,
};

const RESPONSE: Duration = Duration::from_millis(300);

async fn impatient(address: std::net::SocketAddr) -> MemcachedConnection {
    let builder = MemcachedConnection::builder(url(address)).response_timeout(RESPONSE);
    builder.connect().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_keeps_nobody_longer_than_it_may() {
    let server = servers::Memcached::start();
    let connection = impatient(server.address()).await;
    let (swaps, counters) = (swaps(&connection), counters(&connection));
    assert_eq!(admitted(&swaps, &at_once(5), key(), 1).await, 1);
    assert_eq!(admitted(&counters, &window(5), key(), 1).await, 1);
    server.pause();
    for round in 0..2 {
        let calls: Vec<_> = (0..300)
            .map(|n| {
                let (swaps, counters) = (swaps.clone(), counters.clone());
                tokio::spawn(async move {
                    let call = async {
                        match n % 3 {
                            0 => look(&swaps, &at_once(5), key()).await,
                            1 => acquire(&swaps, &at_once(5), Key::from(n)).await,
                            _ => acquire(&counters, &window(5), key()).await,
                        }
                    };
                    // To connect, and to be answered; a call that was combined with one before it
                    // waits for that first.
                    in_time(4 * RESPONSE, call).await
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
    // A deadline of one's own.
    let deadline = Duration::from_millis(20);
    let late = in_time(
        deadline,
        timeout(deadline, look(&swaps, &at_once(5), key())),
    )
    .await;
    assert!(late.is_err());
    server.resume();
    let mut errors = 0;
    while let Err(error) = look(&swaps, &at_once(5), key()).await {
        errors += 1;
        assert!(errors < 20, "{error:?}");
        sleep(Duration::from_millis(10)).await;
    }
    // A call that was sent before may be charged, and nothing else happens to the limit.
    assert!(admitted(&swaps, &at_once(5), key(), 10).await <= 4);
    assert!(admitted(&counters, &window(5), key(), 10).await <= 4);
    assert_eq!(
        admitted(&swaps, &at_once(5), Key::from(10_000_u64), 10).await,
        5
    );
}

#[tokio::test]
async fn a_connection_that_drops_packets_is_closed() {
    let server = servers::Memcached::start();
    let proxy = servers::Proxy::start(server.address());
    let connection = impatient(proxy.address()).await;
    let store = swaps(&connection);
    assert_eq!(admitted(&store, &at_once(5), key(), 1).await, 1);
    proxy.set_flow(servers::Flow::Swallow);
    let error = in_time(2 * RESPONSE, acquire(&store, &at_once(5), key()))
        .await
        .unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    proxy.set_flow(servers::Flow::Forward);
    assert_eq!(admitted(&store, &at_once(5), key(), 10).await, 4);
}

/// All of them are on their way at once: none waits for those before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_network_carries_many_calls_at_once() {
    let server = servers::Memcached::start();
    let proxy = servers::Proxy::start(server.address());
    let connection = connect_through(&proxy, Duration::from_secs(20)).await;
    let delay = Duration::from_millis(40);
    proxy.delay(delay);
    let calls: Vec<_> = (0..100_u64)
        .map(|client| {
            let store = counters(&connection);
            tokio::spawn(async move { admitted(&store, &window(2), Key::from(client), 1).await })
        })
        .collect();
    let all = async {
        let mut sum = 0;
        for call in calls {
            sum += call.await.unwrap();
        }
        sum
    };
    // One behind the other they would take 8 s.
    assert_eq!(in_time(Duration::from_secs(4), all).await, 100);
}

async fn connect_through(proxy: &servers::Proxy, response: Duration) -> MemcachedConnection {
    let builder = MemcachedConnection::builder(url(proxy.address())).response_timeout(response);
    builder.connect().await.unwrap()
}

/// An answer that nobody waits for any more is nobody else's.
#[tokio::test]
async fn cancelled_calls_leave_their_answers_to_nobody() {
    let server = servers::Memcached::start();
    let proxy = servers::Proxy::start(server.address());
    let connection = connect_through(&proxy, Duration::from_secs(20)).await;
    let keep = Duration::from_secs(60);
    let key = |n: u64| format!("tollgate:2:{{{n}}}:api").into_bytes();
    for n in 0..50 {
        connection.add(&key(n), n + 1, keep, &[]).await.unwrap();
    }
    proxy.set_answers(servers::Flow::Hold);
    for n in 0..50 {
        // Sent, and given up before it is answered.
        let key = key(n);
        let call = connection.add(&key, 1000, keep, &[]);
        assert!(timeout(Duration::from_millis(1), call).await.is_err());
    }
    proxy.set_answers(servers::Flow::Forward);
    for n in 0..50 {
        let total = connection.add(&key(n), 1, keep, &[]).await.unwrap().total;
        assert_eq!(total, n + 1002);
    }
    assert_eq!(proxy.accepted(), 1, "the connection was given up");
}

#[test]
fn a_runtime_that_ends_takes_no_other_along() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let server = servers::Memcached::start();
    let (first, second) = (runtime(), runtime());
    let connection = first.block_on(connect(&server));
    let (swaps, counters) = (swaps(&connection), counters(&connection));
    server.pause();
    first.block_on(async {
        for n in 0..3_u64 {
            let (swaps, counters) = (swaps.clone(), counters.clone());
            tokio::spawn(async move { acquire(&swaps, &at_once(5), Key::from(n)).await });
            tokio::spawn(async move { acquire(&counters, &window(5), Key::from(n)).await });
        }
        sleep(Duration::from_millis(50)).await;
    });
    drop(first);
    server.resume();
    second.block_on(async {
        let limit = Duration::from_secs(20);
        let one = timeout(limit, acquire(&swaps, &at_once(5), Key::from(8_u64))).await;
        assert_eq!(one.unwrap().unwrap().remaining(), Some(4));
        let other = timeout(limit, acquire(&counters, &window(5), Key::from(8_u64))).await;
        assert_eq!(other.unwrap().unwrap().remaining(), Some(4));
    });
    // Without a runtime there is nobody to send it.
    let rule = at_once(5);
    let ask = Ask::new(policy(), &rule, key(), tollgate::Cost::ONE);
    let Check::Ready(Err(error)) = swaps.acquire(&[ask]) else {
        panic!("expected an error at once");
    };
    assert!(!error.is_timeout() && !error.is_contended(), "{error:?}");
}
