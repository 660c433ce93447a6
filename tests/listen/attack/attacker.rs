//! An attacker in a process of its own, with thousands of sockets.

use std::{
    env,
    future::pending,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::sleep,
};

use super::{MANY_FILES, Process, answers, connect, reset, server::Server};

const VARIABLE: &str = "TOLLGATE_LISTEN_ATTACKER";

/// The time in which all sockets are opened. A faster attacker fills the queue of the system, which
/// is before all that a server can do.
pub(super) const RAMP: Duration = Duration::from_secs(5);

/// The time after which a socket that was closed is replaced.
const AGAIN: Duration = Duration::from_secs(5);

/// Does nothing, except in a process that `Attacker::start` starts.
#[test]
fn process() {
    let Ok(orders) = env::var(VARIABLE) else {
        return;
    };
    let words: Vec<_> = orders.split(' ').collect();
    let [http, tls, sockets, addresses] = words[..] else {
        panic!("{orders}")
    };
    let script = Arc::new(Script {
        http: http.parse().unwrap(),
        tls: tls.parse().unwrap(),
        is_resting: AtomicBool::new(false),
        served: AtomicU64::new(0),
    });
    let (sockets, addresses): (u32, u32) = (sockets.parse().unwrap(), addresses.parse().unwrap());
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(async {
        for number in 0..sockets {
            let way = WAYS[number as usize % WAYS.len()];
            let number_of_way = number / WAYS.len() as u32;
            let from = way.address(number_of_way, addresses);
            let delay = RAMP * number / sockets;
            tokio::spawn(Arc::clone(&script).keep(way, from, delay));
        }
        answers(move |_| {
            script.is_resting.store(true, Ordering::SeqCst);
            format!("served {}", script.served.load(Ordering::SeqCst))
        });
        pending().await
    })
}

#[derive(Clone, Copy)]
enum Way {
    HalfAHead,
    AByteASecond,
    HelloWithoutEnd,
    PrefaceAndSilence,
    Nothing,
    Reset,
    ProxyHeader,
    Megabyte,
    NeverReads,
    /// Half of them come from one address, the others from machines of one /64.
    OneClient,
}

const WAYS: [Way; 10] = [
    Way::HalfAHead,
    Way::AByteASecond,
    Way::HelloWithoutEnd,
    Way::PrefaceAndSilence,
    Way::Nothing,
    Way::Reset,
    Way::ProxyHeader,
    Way::Megabyte,
    Way::NeverReads,
    Way::OneClient,
];

impl Way {
    fn address(self, number: u32, addresses: u32) -> Ipv4Addr {
        let low = |n: u32| [(n >> 8) as u8, n as u8 | 1];
        let ([a, b], net) = match self {
            Self::OneClient if number.is_multiple_of(2) => ([7, 7], 7),
            Self::OneClient => (low(2 * number), 6),
            _ => (low(2 * (number % addresses)), 8),
        };
        Ipv4Addr::new(127, net, a, b)
    }
}

/// The attack on one server.
struct Script {
    http: SocketAddr,
    tls: SocketAddr,
    is_resting: AtomicBool,
    /// Responses to strangers with a header of a balancer.
    served: AtomicU64,
}

/// Half of a head.
const HALF: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nx-";

impl Script {
    /// Keeps a socket open, by another one if it was closed.
    async fn keep(self: Arc<Self>, way: Way, from: Ipv4Addr, delay: Duration) {
        sleep(delay).await;
        while !self.is_resting.load(Ordering::SeqCst) {
            // A server that closes it makes errors.
            let _ = self.open(way, from).await;
            sleep(AGAIN).await;
        }
    }

    /// Attacks with one socket, until the server closes it.
    async fn open(&self, way: Way, from: Ipv4Addr) -> io::Result<()> {
        let mut stream = match way {
            Way::HelloWithoutEnd => connect(from, self.tls).await?,
            Way::NeverReads => {
                let socket = TcpSocket::new_v4()?;
                socket.set_recv_buffer_size(4096)?;
                socket.bind((from, 0).into())?;
                socket.connect(self.http).await?
            }
            _ => connect(from, self.http).await?,
        };
        match way {
            Way::HalfAHead => stream.write_all(HALF).await?,
            Way::AByteASecond => loop {
                stream.write_all(b"G").await?;
                sleep(Duration::from_secs(1)).await;
            },
            Way::HelloWithoutEnd => {
                // A record of 512 bytes, with the beginning of a `ClientHello`.
                let hello = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
                stream.write_all(&hello).await?;
            }
            Way::PrefaceAndSilence => {
                let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
                stream.write_all(preface).await?;
            }
            Way::Nothing | Way::OneClient => {}
            Way::Reset => {
                stream.write_all(HALF).await?;
                sleep(Duration::from_millis(200)).await;
                reset(stream);
                return Ok(());
            }
            Way::ProxyHeader => return self.pretends(stream, from).await,
            Way::Megabyte => {
                stream.write_all(b"GET / HTTP/1.1\r\nx-a: ").await?;
                for _ in 0..64 {
                    stream.write_all(&[b'a'; 16 * 1024]).await?;
                }
            }
            Way::NeverReads => {
                let request = b"GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n";
                stream.write_all(request).await?;
                pending::<()>().await;
            }
        }
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        Ok(())
    }

    /// Begins with the header of a balancer, in the name of an honest client, and a request.
    async fn pretends(&self, mut stream: TcpStream, from: Ipv4Addr) -> io::Result<()> {
        let header: &[u8] = match from.octets()[3] & 2 {
            0 => b"PROXY TCP4 127.1.0.1 127.0.0.1 4711 80\r\n",
            _ => b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\x01\0\x01\x7f\0\0\x01\x12\x67\0\x50",
        };
        stream.write_all(header).await?;
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await?;
        let mut response = Vec::new();
        // It may be reset after its response.
        let _ = stream.read_to_end(&mut response).await;
        if response.starts_with(b"HTTP/1.1 200") {
            self.served.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// An attacker of one server. When dropped, all of its sockets are closed.
pub(super) struct Attacker(Process);

impl Attacker {
    /// Starts an attack with so many sockets, a tenth of them from one client, the others from so
    /// many addresses.
    pub(super) fn start(server: &Server, sockets: u32, addresses: u32) -> Self {
        let orders = format!("{} {} {sockets} {addresses}", server.http, server.tls);
        let test = "attack::attacker::process";
        Self(Process::start(test, VARIABLE, &orders, MANY_FILES))
    }

    pub(super) fn id(&self) -> String {
        self.0.id()
    }

    /// Opens no more sockets, and keeps those that are open. Returns how many strangers with the
    /// header of a balancer got a response.
    pub(super) fn rest(&mut self) -> u64 {
        self.0.ask("rest", "served").parse().unwrap()
    }
}
