//! Several connections to one server.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use super::{
    command::Commands,
    handshake::number,
    pipeline::{Pipeline, PipelineError, Responses, ServerTime},
    server::Server,
};
use crate::{
    store::{Error, engine::SingleFlight},
    time::Timestamp,
};

/// Limit of the bytes that an item takes besides its value: its header, its key, and the overhead of its chunks.
const ITEM_OVERHEAD: u64 = 512;
/// The smallest possible item size limit of a server (`-I`).
const MIN_ITEM_SIZE: u64 = 1024;

/// A fixed number of connections to one server, used in turn. Each is made by its first call, and again after it was lost.
pub(super) struct Pool {
    server: Arc<Server>,
    /// The address of the server as text.
    pub(super) address: Box<str>,
    connections: Vec<Arc<PooledConnection>>,
    next: AtomicUsize,
    /// Number of values that were not numbers and were removed.
    pub(super) healed: AtomicU64,
}

struct PooledConnection {
    server: Arc<Server>,
    current: Mutex<Option<Arc<Pipeline>>>,
    connecting: SingleFlight,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("address", &self.server.address)
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// Creates a pool whose connections are made by the first calls.
    pub(super) fn new(server: Server, connections: usize) -> Self {
        let server = Arc::new(server);
        let connection = || PooledConnection {
            server: Arc::clone(&server),
            current: Mutex::default(),
            connecting: SingleFlight::default(),
        };
        let connections = (0..connections.max(1))
            .map(|_| Arc::new(connection()))
            .collect();
        Self {
            address: server.address.to_string().into(),
            server,
            connections,
            next: AtomicUsize::new(0),
            healed: AtomicU64::new(0),
        }
    }

    /// Returns the next connection in turn and its index, and connects first if necessary.
    pub(super) async fn get(&self) -> Result<(usize, Arc<Pipeline>), Error> {
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

    /// Sends commands over any connection. Uses another one if the server had closed the first while it was idle.
    pub(super) async fn send(
        &self,
        write: impl Fn(&mut Commands<'_>),
    ) -> Result<(usize, Arc<Pipeline>, Responses), Error> {
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

    /// Returns the server's Unix time, to within a second or so. Asks for it if that was not done lately. `None` if the answer took too long.
    pub(super) async fn server_now(&self) -> Result<Option<Timestamp>, Error> {
        let (_, pipeline) = self.get().await?;
        if let Some(now) = pipeline.server_now() {
            return Ok(Some(now));
        }
        let at = pipeline.now();
        let (_, pipeline, responses) = self.send(|commands| _ = commands.plain("stats")).await?;
        let seconds = number(&responses, "time")?;
        pipeline.set_server_time(ServerTime { seconds, at });
        Ok(pipeline.server_now())
    }

    /// Checks that a value fits into an item of the server.
    ///
    /// The server would not only reject a larger value, but also remove the old one, even if the swap would have been lost.
    ///
    /// # Errors
    ///
    /// When the value is too large.
    pub(super) async fn check_size(&self, value: &[u8]) -> Result<(), Error> {
        let needed = value.len() as u64 + ITEM_OVERHEAD;
        let max_item_size = self.get().await?.1.max_item_size;
        if needed <= max_item_size {
            return Ok(());
        }
        // Without the number of bytes: the same text for all keys, which is logged once.
        Err(Error::unsupported(format!(
            "the state of this key does not fit into an item of the memcached server: expected at most its `item_size_max` of \
             {max_item_size} bytes, less {ITEM_OVERHEAD}; start it with a larger -I, or choose a rule with smaller states"
        )))
    }
}

impl PooledConnection {
    fn current(&self) -> MutexGuard<'_, Option<Arc<Pipeline>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection, if it is open.
    fn existing(&self) -> Option<Arc<Pipeline>> {
        self.current()
            .clone()
            .filter(|pipeline| !pipeline.is_closed())
    }

    /// Connects, unless a concurrent call already does.
    async fn connect(self: &Arc<Self>) -> Result<Arc<Pipeline>, Error> {
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

/// Returns `true` if there are servers that do not accept a value of that size.
pub(super) fn is_large(value: &[u8]) -> bool {
    value.len() as u64 + ITEM_OVERHEAD > MIN_ITEM_SIZE
}
