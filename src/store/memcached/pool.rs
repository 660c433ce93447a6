//! Several connections to one server, and the checks of a new one.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{net::TcpStream, time::timeout};

use super::{
    builder::Address,
    pipeline::{Pipeline, PipelineError, Responses, ServerTime},
    protocol::{Commands, Precondition, Response, unexpected},
};
use crate::{
    locks::lock,
    stats::Counter,
    store::{StoreError, engine::SingleFlight},
    time::{Clock, LeaseClock, Timestamp},
};

/// Limit of the bytes that an item takes besides its value: its header, its key, and the overhead
/// of its chunks.
const ITEM_OVERHEAD: u64 = 512;
/// The smallest possible item size limit of a server (`-I`).
const MIN_ITEM_SIZE: u64 = 1024;

/// A fixed number of connections to one server, used in turn. Each is made by its first call, and
/// again after it was lost.
pub(super) struct Pool {
    /// The address of the server as text.
    pub(super) address: Box<str>,
    connections: Vec<Arc<PooledConnection>>,
    next: AtomicUsize,
    /// Number of values that were not numbers and were removed.
    pub(super) healed: Counter,
}

struct PooledConnection {
    server: Arc<MemcachedServer>,
    current: Mutex<Option<Arc<Pipeline>>>,
    connecting: SingleFlight,
}

impl_debug!(
    Pool,
    |it| address = it.address,
    connections = it.connections.len()
);

impl Pool {
    /// Creates a pool whose connections are made by the first calls.
    pub(super) fn new(server: MemcachedServer, connections: usize) -> Self {
        let server = Arc::new(server);
        let connection = || PooledConnection {
            server: Arc::clone(&server),
            current: Mutex::default(),
            connecting: SingleFlight::new(server.response_timeout),
        };
        let connections = (0..connections.max(1))
            .map(|_| Arc::new(connection()))
            .collect();
        Self {
            address: server.address.to_string().into(),
            connections,
            next: AtomicUsize::new(0),
            healed: Counter::default(),
        }
    }

    /// Returns the next connection in turn and its index, and connects first if necessary.
    pub(super) async fn get(&self) -> Result<(usize, Arc<Pipeline>), StoreError> {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        let connection = &self.connections[index];
        let pipeline = match connection.existing() {
            Some(pipeline) => pipeline,
            // Boxed, as it is rare and large: every call would carry it otherwise.
            None => Box::pin(connection.connect()).await?,
        };
        Ok((index, pipeline))
    }

    /// Returns the connection at an index if it still has that id.
    pub(super) fn find(&self, index: usize, id: u64) -> Option<Arc<Pipeline>> {
        let pipeline = self.connections.get(index)?.existing();
        pipeline.filter(|pipeline| pipeline.id == id)
    }

    /// Sends commands over any connection. Uses another one if the server had closed the first
    /// while it was idle.
    pub(super) async fn send(
        &self,
        write: impl Fn(&mut Commands<'_>),
    ) -> Result<(usize, Arc<Pipeline>, Responses), StoreError> {
        let mut is_first = true;
        loop {
            let (index, pipeline) = self.get().await?;
            match pipeline.send(&write).await {
                Ok(responses) => return Ok((index, pipeline, responses)),
                Err(PipelineError::NotSent) if is_first => is_first = false,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the server's Unix time, to within a second or so; requests it if the last answer is
    /// too old. `None` if the answer took too long.
    pub(super) async fn server_now(&self) -> Result<Option<Timestamp>, StoreError> {
        let (_, pipeline) = self.get().await?;
        if let Some(now) = pipeline.server_now() {
            return Ok(Some(now));
        }
        let at = LeaseClock.now();
        let (_, pipeline, responses) = self.send(|commands| _ = commands.plain("stats")).await?;
        let seconds = stat_number(&responses, "time")?;
        pipeline.set_server_time(ServerTime { seconds, at });
        Ok(pipeline.server_now())
    }

    /// Checks that a value fits into an item of the server.
    ///
    /// The server would not only reject a larger value, but also remove the old one, even if the
    /// swap would have been lost.
    ///
    /// # Errors
    ///
    /// When the value is too large.
    pub(super) async fn check_size(&self, value: &[u8]) -> Result<(), StoreError> {
        let needed = value.len() as u64 + ITEM_OVERHEAD;
        let max_item_size = self.get().await?.1.max_item_size;
        if needed <= max_item_size {
            return Ok(());
        }
        // The text lacks the size of the value, so that it is the same for all keys and is logged
        // once.
        Err(StoreError::unsupported(format!(
            "the state of this key does not fit into an item of the memcached server: expected at most its `item_size_max` of \
             {max_item_size} bytes, less {ITEM_OVERHEAD}; start it with a larger -I, or choose a rule with smaller states"
        )))
    }
}

impl PooledConnection {
    fn current(&self) -> MutexGuard<'_, Option<Arc<Pipeline>>> {
        lock(&self.current)
    }

    /// Returns the connection, if it is open.
    fn existing(&self) -> Option<Arc<Pipeline>> {
        self.current()
            .clone()
            .filter(|pipeline| !pipeline.is_closed())
    }

    /// Connects, unless a concurrent call already does.
    async fn connect(self: &Arc<Self>) -> Result<Arc<Pipeline>, StoreError> {
        let connection = Arc::clone(self);
        let connect = async move {
            let pipeline = Arc::new(connection.server.connect().await?);
            *connection.current() = Some(Arc::clone(&pipeline));
            Ok(pipeline)
        };
        let existing = || self.existing();
        self.connecting.get_or_try_init(existing, connect).await
    }
}

/// Returns `true` if some servers reject a value of that size.
pub(super) fn is_large(value: &[u8]) -> bool {
    value.len() as u64 + ITEM_OVERHEAD > MIN_ITEM_SIZE
}

/// A server, and its response timeout.
pub(super) struct MemcachedServer {
    pub(super) address: Address,
    pub(super) response_timeout: Duration,
}

impl MemcachedServer {
    /// Makes a connection and checks the server, within the response timeout.
    async fn connect(&self) -> Result<Pipeline, StoreError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let Address { host, port } = &self.address;
        let connecting = async {
            let stream = TcpStream::connect((host.as_str(), *port)).await;
            let stream = stream.map_err(|error| {
                StoreError::unavailable(format!(
                    "{error}: expected memcached at {host}:{port}; check that it runs there and is reachable from this host"
                ))
            })?;
            // Commands are already combined into few writes here.
            stream.set_nodelay(true).map_err(StoreError::unavailable)?;
            let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
            handshake(Pipeline::new(stream, id, self.response_timeout)).await
        };
        let connected = timeout(self.response_timeout, connecting).await;
        connected.unwrap_or_else(|_| Err(StoreError::timeout()))
    }
}

/// The first version with meta commands.
const OLDEST: [u64; 2] = [1, 6];

/// A key that is never stored. Commands for it have no effect, but fail if the server does not
/// support them.
const UNUSED_KEY: &[u8] = b"tollgate:nobody";

/// Checks that the server supports the necessary commands, and reads its time and its largest item.
async fn handshake(mut pipeline: Pipeline) -> Result<Pipeline, StoreError> {
    let version = pipeline.send(|commands| _ = commands.plain("version"));
    match version.await?.first() {
        Some(Response::Version(version)) if is_old(version) => {
            return Err(StoreError::other(format!(
                "the memcached server has version {version}, which has no meta commands: expected {}.{} or later; update it",
                OLDEST[0], OLDEST[1],
            )));
        }
        Some(Response::Version(_)) => {}
        other => return Err(unexpected(other)),
    }
    let asked_at = LeaseClock.now();
    let probe = pipeline.send(|commands| {
        commands.get(UNUSED_KEY).subtract(UNUSED_KEY, 1);
        commands.delete(UNUSED_KEY, Precondition::Unchanged(1));
        // This write has no effect either, as the key has no value.
        commands.set(
            UNUSED_KEY,
            b"",
            Precondition::Unchanged(1),
            Duration::from_secs(1),
        );
        commands.plain("stats").plain("stats settings");
    });
    let responses = probe.await?;
    for (response, command) in responses.iter().zip(["mg", "ma", "md", "ms"]) {
        if let Response::Error(line) = response {
            return Err(StoreError::other(format!(
                "the memcached server does not support the necessary form of the command `{command}` (it answers {line:?}): expected \
                 memcached {}.{} or later; update it",
                OLDEST[0], OLDEST[1],
            )));
        }
    }
    if stat(&responses, "cas_enabled") == Some("no") {
        return Err(StoreError::other(
            "the memcached server has compare-and-swap disabled: expected it to be enabled; \
             start the server without -C",
        ));
    }
    pipeline.set_server_time(ServerTime {
        seconds: stat_number(&responses, "time")?,
        at: asked_at,
    });
    pipeline.max_item_size = stat_number(&responses, "item_size_max")?;
    Ok(pipeline)
}

/// Returns a line of `stats`.
fn stat<'a>(responses: &'a [Response], name: &str) -> Option<&'a str> {
    let mut lines = responses.iter().filter_map(|response| match response {
        Response::Lines(lines) => Some(lines),
        _ => None,
    });
    let (_, value) = lines.find_map(|lines| lines.iter().find(|(is, _)| is == name))?;
    Some(value)
}

/// Returns a number of `stats`.
///
/// # Errors
///
/// When it is not among the responses.
fn stat_number(responses: &[Response], name: &str) -> Result<u64, StoreError> {
    let found = stat(responses, name).and_then(|value| value.parse().ok());
    found.ok_or_else(|| {
        StoreError::other(format!(
            "the `stats` of the memcached server have no `{name}`: expected a number; update it"
        ))
    })
}

fn is_old(version: &str) -> bool {
    let parts: Vec<u64> = version
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect();
    parts[..] < OLDEST[..]
}

#[cfg(test)]
mod tests {
    use super::is_old;

    #[test]
    fn versions_are_compared_by_number() {
        for version in ["1.5.22", "1.4", "0.9", "1", ""] {
            assert!(is_old(version), "{version}");
        }
        for version in ["1.6.0", "1.6", "1.6.18", "1.10.1", "2.0", "1.6.0-beta1"] {
            assert!(!is_old(version), "{version}");
        }
    }
}
