//! The time that a guarded listener adds to a connection and to a request, beside a plain one. All
//! of it happens on one thread: clients, kernel and server.
#![allow(
    clippy::float_arithmetic,
    clippy::unwrap_used,
    reason = "a benchmark prints times, and stops where something is odd"
)]

use std::{
    future::IntoFuture,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use axum::{Router, routing::get, serve::Listener};
use rustix::net::sockopt::set_socket_linger;
use support::bench::{Cost, Mode, StopWatch, spread, take_turns};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    runtime::Runtime,
};
use tollgate::{
    TokenBucket,
    listen::{Guarded, GuardedListener},
};

const ROUNDS: usize = 41;

/// Connections that wait to be accepted, each from an address of its own.
const BATCH: usize = 64;

async fn bind() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap()
}

async fn guarded() -> GuardedListener<TcpListener> {
    Guarded::new(bind().await)
        .at_most(1_000)
        .per_client(16)
        .accept(TokenBucket::per_second(1_000_000).burst(1_000_000))
        .head_within(Duration::from_secs(10))
        .idle_for(Duration::from_secs(120))
        .build()
        .unwrap()
}

async fn connect(number: usize, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    let from = Ipv4Addr::new(127, 1, 0, (number % BATCH) as u8 + 1);
    socket.bind((from, 0).into()).unwrap();
    let stream = socket.connect(to).await.unwrap();
    // A connection that is closed in order keeps its port for a minute.
    set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    stream
}

/// Accepts and drops connections.
fn accepts<L>(runtime: &Runtime, mut listener: L, batches: usize) -> impl FnMut() -> Cost
where
    L: Listener<Addr = SocketAddr>,
{
    let to = listener.local_addr().unwrap();
    move || {
        runtime.block_on(async {
            let mut watch = StopWatch::default();
            for _ in 0..batches {
                let mut clients = Vec::with_capacity(BATCH);
                for number in 0..BATCH {
                    clients.push(connect(number, to).await);
                }
                watch.start();
                for _ in 0..BATCH {
                    drop(listener.accept().await);
                }
                watch.stop();
            }
            watch.per(batches * BATCH)
        })
    }
}

fn serve<L>(runtime: &Runtime, listener: L) -> SocketAddr
where
    L: Listener<Addr = SocketAddr>,
{
    let address = listener.local_addr().unwrap();
    let app = Router::new().route("/", get(async || "hello"));
    runtime.spawn(axum::serve(listener, app).into_future());
    address
}

async fn ask(stream: &mut TcpStream) {
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut response = [0; 512];
    let count = stream.read(&mut response).await.unwrap();
    assert!(response[..count].ends_with(b"hello"));
}

/// Connects, asks once, and closes.
fn connections(runtime: &Runtime, to: SocketAddr, count: usize) -> impl FnMut() -> Cost {
    move || {
        runtime.block_on(async {
            let mut watch = StopWatch::default();
            watch.start();
            for number in 0..count {
                ask(&mut connect(number, to).await).await;
            }
            watch.stop();
            watch.per(count)
        })
    }
}

/// Asks over one connection.
fn requests(runtime: &Runtime, to: SocketAddr, count: usize) -> impl FnMut() -> Cost {
    let mut stream = runtime.block_on(connect(0, to));
    move || {
        runtime.block_on(async {
            let mut watch = StopWatch::default();
            watch.start();
            for _ in 0..count {
                ask(&mut stream).await;
            }
            watch.stop();
            watch.per(count)
        })
    }
}

fn race(mode: &Mode, name: &str, aim: &str, turns: [&mut dyn FnMut() -> Cost; 2]) {
    if !mode.runs(name) {
        return;
    }
    let rounds = mode.rounds(ROUNDS);
    let [plain, guarded] = turns;
    let costs = take_turns(mode, rounds, 2, |who, _| match who {
        0 => plain(),
        _ => guarded(),
    });
    let micros = |of: fn(&Cost) -> f64| {
        let each = |who: usize| spread(costs[who].iter().map(of))[1] / 1e3;
        let pairs = costs[0].iter().zip(&costs[1]);
        let [least, median, most] = spread(pairs.map(|(a, b)| (of(b) - of(a)) / 1e3));
        let (plain, guarded) = (each(0), each(1));
        format!("{plain:.2} | {guarded:.2} | **{median:.2}** ({least:.2}–{most:.2})")
    };
    let (wall, cpu) = (micros(|cost| cost.wall), micros(|cost| cost.cpu));
    if mode.full {
        println!("| {name} | {wall} | {cpu} | {aim} |");
    }
}

fn main() {
    let mode = &Mode::from_args();
    let runtime = &tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    // As on a server with more connections: some deadline is always nearer than that of a new one.
    // Otherwise each new one wakes the driver of the timers, by a call of the system.
    runtime.spawn(async {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    if mode.full {
        let rounds = mode.rounds(ROUNDS);
        println!("Microseconds, medians of {rounds} rounds; their difference (least–greatest)\n");
        println!("| | plain | guarded | more | cpu: plain | guarded | more | aim |");
        println!("|---|---|---|---|---|---|---|---|");
    }
    let bound = || runtime.block_on(async { (bind().await, guarded().await) });
    let (plain, guarded) = bound();
    let (on_plain, on_guarded) = (serve(runtime, plain), serve(runtime, guarded));

    let batches = mode.pick(16, 1);
    let (plain, guarded) = bound();
    race(
        mode,
        "accept and drop",
        "≤ 2",
        [
            &mut accepts(runtime, plain, batches),
            &mut accepts(runtime, guarded, batches),
        ],
    );
    let count = mode.pick(1_000, 10);
    race(
        mode,
        "a connection of one request",
        "≤ 2",
        [
            &mut connections(runtime, on_plain, count),
            &mut connections(runtime, on_guarded, count),
        ],
    );
    let count = mode.pick(5_000, 10);
    race(
        mode,
        "a request over a kept connection",
        "–",
        [
            &mut requests(runtime, on_plain, count),
            &mut requests(runtime, on_guarded, count),
        ],
    );
    if !mode.full {
        println!("smoke test: all connections are accepted and answered; nothing was measured");
    }
}
