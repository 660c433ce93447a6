//! Honest clients: requests over connections that are kept, and over new ones.

use std::{
    net::{Ipv4Addr, SocketAddr},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::{
    runtime::{Handle, Runtime},
    sync::Mutex,
    time::{sleep, timeout},
};

use super::{SOON, connect, server::IDLE_FOR};

/// Clients of each server, each with an address of its own.
pub(super) const CLIENTS: usize = 24;

/// The time between the requests of one client. It stays below the limit of new connections.
const PAUSE: Duration = Duration::from_millis(100);

type Sender = SendRequest<Empty<Bytes>>;

fn address(client: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 1, 0, client as u8 + 1)
}

async fn open(client: usize, server: SocketAddr) -> Sender {
    let stream = connect(address(client), server).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn ask(sender: &mut Sender) {
    let request = Request::get("/").header(header::HOST, "localhost");
    let request = request.body(Empty::new()).unwrap();
    sender.ready().await.unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "hello");
}

/// Connects and asks once.
async fn ask_anew(client: usize, server: SocketAddr) {
    ask(&mut open(client, server).await).await;
}

async fn timed(work: impl Future<Output = ()>) -> Duration {
    let start = Instant::now();
    timeout(SOON, work).await.expect("a response");
    start.elapsed()
}

/// A client, with a connection to each of two servers that it keeps.
struct Client {
    number: usize,
    kept: [Sender; 2],
}

/// Honest clients of two servers, which they ask by turns.
#[derive(Clone)]
pub(super) struct Honest {
    clients: std::sync::Arc<[Mutex<Client>]>,
    servers: [SocketAddr; 2],
}

/// The latency that one request in a hundred exceeds, on one server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latencies {
    pub(super) kept: Duration,
    /// With the time to connect.
    pub(super) new: Duration,
}

fn p99(mut latencies: Vec<Duration>) -> Duration {
    latencies.sort_unstable();
    latencies[latencies.len() * 99 / 100]
}

impl Honest {
    pub(super) fn connect(runtime: &Runtime, servers: [SocketAddr; 2]) -> Self {
        let clients = (0..CLIENTS).map(async |number| {
            let kept = [
                open(number, servers[0]).await,
                open(number, servers[1]).await,
            ];
            Mutex::new(Client { number, kept })
        });
        let clients = runtime.block_on(join_all(clients));
        Self {
            clients: clients.into(),
            servers,
        }
    }

    /// Asks for so long, by all clients.
    pub(super) fn ask_for(&self, runtime: &Runtime, time: Duration) -> [Latencies; 2] {
        runtime.block_on(self.clone().ask(time))
    }

    /// The same on a thread of its own.
    pub(super) fn ask_beside(
        &self,
        runtime: &Runtime,
        time: Duration,
    ) -> thread::JoinHandle<[Latencies; 2]> {
        let (handle, honest): (Handle, _) = (runtime.handle().clone(), self.clone());
        thread::spawn(move || handle.block_on(honest.ask(time)))
    }

    async fn ask(self, time: Duration) -> [Latencies; 2] {
        let until = Instant::now() + time;
        let clients = (0..CLIENTS).map(|number| {
            let honest = self.clone();
            tokio::spawn(async move {
                let mut client = honest.clients[number].lock().await;
                client.ask_until(honest.servers, until).await
            })
        });
        let all = join_all(clients.collect::<Vec<_>>()).await;
        let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
        [0, 1].map(|server| {
            let all = |of: fn(&[Vec<Duration>; 2]) -> &Vec<Duration>| {
                p99(all
                    .iter()
                    .flat_map(|seen| of(&seen[server]))
                    .copied()
                    .collect())
            };
            Latencies {
                kept: all(|[kept, _]| kept),
                new: all(|[_, new]| new),
            }
        })
    }

    /// Asks a server by new connections of all clients, each of which must be answered.
    pub(super) fn all_are_answered(&self, runtime: &Runtime, server: SocketAddr) {
        let asks = (0..CLIENTS).map(|client| timed(ask_anew(client, server)));
        runtime.block_on(join_all(asks));
    }
}

impl Client {
    /// Returns the latencies of each server, over kept and new connections.
    async fn ask_until(
        &mut self,
        servers: [SocketAddr; 2],
        until: Instant,
    ) -> [[Vec<Duration>; 2]; 2] {
        let mut seen: [[Vec<Duration>; 2]; 2] = Default::default();
        sleep(PAUSE * self.number as u32 / CLIENTS as u32).await;
        let mut asked = [Instant::now(); 2];
        for turn in 0.. {
            if Instant::now() >= until {
                break;
            }
            // Each is first in every second turn.
            for server in [turn % 2, 1 - turn % 2] {
                // A busy machine may drop the first packets of a new connection, so that it takes
                // many seconds. Meanwhile one that was kept is closed.
                if asked[server].elapsed() > IDLE_FOR / 2 {
                    self.kept[server] = open(self.number, servers[server]).await;
                }
                seen[server][0].push(timed(ask(&mut self.kept[server])).await);
                asked[server] = Instant::now();
                seen[server][1].push(timed(ask_anew(self.number, servers[server])).await);
            }
            sleep(PAUSE).await;
        }
        seen
    }
}

/// Returns how many of some clients get a response over a new connection in time.
pub(super) fn answered_within(runtime: &Runtime, server: SocketAddr, time: Duration) -> usize {
    let asks = (0..8).map(async |client| timeout(time, ask_anew(client, server)).await);
    let answers = runtime.block_on(join_all(asks));
    answers.into_iter().filter(Result::is_ok).count()
}
