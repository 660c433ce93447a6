//! A TCP proxy that makes the network slow, silent or closed. Its faults can change while it runs.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

use super::wait::wait_until;

/// The handling of bytes in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// Bytes are forwarded.
    #[default]
    Forward,
    /// Bytes wait until the flow is [`Forward`](Self::Forward) again.
    Hold,
    /// Bytes are dropped, and so is the end of the connection. The sender does not notice.
    Swallow,
}

#[derive(Debug, Default)]
struct Settings {
    delay: Duration,
    requests: Flow,
    answers: Flow,
    /// Connections with a lower number never forward anything again.
    first_alive: usize,
    /// Each connection holds the generation in which it was accepted, and is closed when that
    /// changes.
    generation: Arc<()>,
}

impl Settings {
    /// Returns the flow of a connection. `most` is the flow of ordinary connections.
    fn flow(&self, number: usize, most: Flow) -> Flow {
        if number < self.first_alive {
            Flow::Hold
        } else {
            most
        }
    }
}

/// A proxy on a thread of its own. Its connections are closed when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    settings: watch::Sender<Settings>,
    accepted: Arc<AtomicUsize>,
    /// Dropped to stop the thread.
    running: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of `target`, which need not run yet. It forwards everything without
    /// delay.
    pub fn start(target: SocketAddr) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (settings, watched) = watch::channel(Settings::default());
        let (running, stopped) = oneshot::channel::<()>();
        let accepted = Arc::new(AtomicUsize::new(0));
        let run = {
            let accepted = Arc::clone(&accepted);
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    tokio::select! {
                        _ = stopped => {}
                        end = accept(listener, target, watched, &accepted) => end.unwrap(),
                    }
                });
            }
        };
        Self {
            address,
            settings,
            accepted,
            running: Some(running),
            thread: Some(thread::spawn(run)),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Delays later bytes by this much in each direction.
    pub fn delay(&self, delay: Duration) {
        self.settings.send_modify(|settings| settings.delay = delay);
    }

    /// Changes the handling of bytes in both directions.
    pub fn set_flow(&self, flow: Flow) {
        self.set_requests(flow);
        self.set_answers(flow);
    }

    /// Changes the handling of bytes that clients send.
    pub fn set_requests(&self, flow: Flow) {
        self.settings
            .send_modify(|settings| settings.requests = flow);
    }

    /// Changes the handling of bytes that clients receive.
    pub fn set_answers(&self, flow: Flow) {
        self.settings
            .send_modify(|settings| settings.answers = flow);
    }

    /// Closes all open connections and drops the bytes in them. New connections are accepted.
    pub fn cut(&self) {
        let mut generation = Arc::default();
        self.settings
            .send_modify(|settings| std::mem::swap(&mut settings.generation, &mut generation));
        wait_until(
            "cut connections are closed",
            Duration::from_secs(10),
            || match Arc::strong_count(&generation) - 1 {
                0 => Ok(()),
                open => Err(format!("{open} are open")),
            },
        );
    }

    /// Leaves all open connections half-open: neither bytes nor the end of the connection arrive
    /// any more, in either direction. New connections work.
    pub fn abandon(&self) {
        let accepted = self.accepted();
        self.settings
            .send_modify(|settings| settings.first_alive = accepted);
    }

    /// Returns the number of connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Relaxed)
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        Arc::strong_count(&self.settings.borrow().generation) - 1
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.running.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(
    listener: std::net::TcpListener,
    target: SocketAddr,
    settings: watch::Receiver<Settings>,
    accepted: &AtomicUsize,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (client, _) = listener.accept().await?;
        let generation = Arc::clone(&settings.borrow().generation);
        let number = accepted.fetch_add(1, Relaxed);
        let mut watched = settings.clone();
        let forward = forward(number, client, target, settings.clone());
        tokio::spawn(async move {
            tokio::select! {
                // A failed connection is closed, which is all that its ends can observe.
                _ = forward => {}
                _ = watched.wait_for(|now| !Arc::ptr_eq(&now.generation, &generation)) => {}
            }
        });
    }
}

async fn forward(
    number: usize,
    client: TcpStream,
    target: SocketAddr,
    settings: watch::Receiver<Settings>,
) -> io::Result<()> {
    let server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::try_join!(
        pipe(from_client, to_server, settings.clone(), |now| now
            .flow(number, now.requests)),
        pipe(from_server, to_client, settings, |now| now
            .flow(number, now.answers)),
    )?;
    Ok(())
}

/// Forwards one direction. It continues to read while earlier bytes wait, so that delays do not
/// reduce throughput.
async fn pipe(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut settings: watch::Receiver<Settings>,
    flow: impl Fn(&Settings) -> Flow,
) -> io::Result<()> {
    let (sender, mut line) = mpsc::unbounded_channel();
    let watched = settings.clone();
    let read = async {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            // No bytes or an error mean the end.
            let count = from.read(&mut bytes).await.unwrap_or(0);
            let due = Instant::now() + watched.borrow().delay;
            let _ = sender.send((due, bytes[..count].to_vec()));
            if count == 0 {
                return Ok(());
            }
        }
    };
    let write = async {
        while let Some((due, bytes)) = line.recv().await {
            sleep_until(due).await;
            let is_end = bytes.is_empty();
            let may_go = |now: &Settings| match flow(now) {
                Flow::Forward => true,
                Flow::Hold => false,
                Flow::Swallow => !is_end,
            };
            let swallowed = {
                let now = settings.wait_for(may_go).await.map_err(io::Error::other)?;
                flow(&now) == Flow::Swallow
            };
            if is_end {
                return to.shutdown().await;
            }
            if !swallowed {
                to.write_all(&bytes).await?;
            }
        }
        Ok(())
    };
    tokio::try_join!(read, write)?;
    Ok(())
}
