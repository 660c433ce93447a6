//! Many connections in turn, which leave nothing behind.

use std::{
    future::IntoFuture,
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use axum::{Router, routing::get};
use support::servers::wait_until;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tollgate::{
    Limiter, Policy, TokenBucket,
    listen::{Connections, Guarded},
    store::LocalBuilder,
};

use super::{SOON, connect, reset, runtime, server::memory_of, turn};

const CLIENTS: u32 = 8;

/// The keys of the limit of new connections.
const KEYS: usize = 4096;

/// The connections after which what is allocated once is allocated.
const WARM_UP: u32 = 10_000;

/// Each number has another address, of eight million.
fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x7f00_0000 | 0x0080_0000 | number)
}

/// Connects as another client, and goes in another way than the one before.
async fn pass(number: u32, server: SocketAddr) {
    let mut stream = connect(address(number), server).await.unwrap();
    match number / CLIENTS % 4 {
        0 => {}
        1 => stream.write_all(b"GET / HTTP/1.1\r\nho").await.unwrap(),
        _ => {
            let request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
            stream.write_all(request).await.unwrap();
            let mut response = [0; 512];
            let count = stream.read(&mut response).await.unwrap();
            assert!(response[..count].starts_with(b"HTTP/1.1 200"));
        }
    }
    reset(stream);
}

/// Makes the connections of these numbers, by several clients at once.
async fn pass_all(numbers: std::ops::Range<u32>, server: SocketAddr) {
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let numbers = numbers.clone().filter(move |n| n % CLIENTS == client);
            tokio::spawn(async move {
                for number in numbers {
                    pass(number, server).await;
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
}

fn all_are_closed(connections: &Connections, count: u32) {
    wait_until("all connections are accepted and closed", SOON, || {
        let stats = connections.stats();
        let closed = stats.open == 0 && stats.accepted == u64::from(count);
        closed.then_some(()).ok_or_else(|| format!("{stats:?}"))
    });
}

fn connections_leave_nothing_behind(count: u32) {
    let _turn = turn();
    let runtime = runtime();
    let store = LocalBuilder::new().capacity(KEYS).build();
    let rule = TokenBucket::per_second(20).burst(60);
    let limiter = Limiter::new(Policy::new("accept"), rule, store);
    let (server, connections) = runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let guarded = Guarded::new(listener)
            .at_most(2_000)
            .per_client(16)
            .accept_by(&limiter)
            .head_within(Duration::from_secs(10))
            .idle_for(Duration::from_secs(20));
        let connections = guarded.connections();
        let listener = guarded.build().unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/", get(async || "hello"));
        tokio::spawn(axum::serve(listener, app).into_future());
        (address, connections)
    });
    runtime.block_on(pass_all(0..WARM_UP, server));
    all_are_closed(&connections, WARM_UP);
    let before = memory_of("self");
    let start = Instant::now();
    runtime.block_on(pass_all(WARM_UP..count, server));
    all_are_closed(&connections, count);
    let time = start.elapsed();
    let after = memory_of("self");
    let keys = limiter.store().len();
    eprintln!("{count} connections, {time:?}, {before} bytes, then {after}; {keys} keys");
    assert!(after < before + 4 * 1024 * 1024, "{before} → {after}");
    assert!(keys <= 2 * KEYS, "{keys}");
}

#[test]
fn twenty_thousand_connections_leave_nothing_behind() {
    connections_leave_nothing_behind(20_000);
}

#[test]
#[ignore = "takes minutes"]
fn slow_a_million_connections_leave_nothing_behind() {
    connections_leave_nothing_behind(1_000_000);
}
