//! One connection that all calls share. Responses arrive in the order of the commands.
//!
//! A call whose future is dropped stays in the queue: its response is read and discarded, so that no call reads the response of
//! another.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{net::TcpStream, sync::oneshot};

use super::{command::Commands, driver::Driver, response::Response};
use crate::{
    store::Error,
    time::{Clock, Timestamp, TokioClock},
};

/// The responses to the commands of one call.
pub(super) type Responses = SmallVec<[Response; 1]>;

/// The reason for a missing response.
#[derive(Clone, Debug)]
pub(super) enum PipelineError {
    /// The connection was closed before the commands were sent.
    NotSent,
    /// The server did not answer within the response timeout.
    Timeout,
    /// The connection ended, for this reason; the commands may have been executed.
    Ended(String),
}

impl From<PipelineError> for Error {
    fn from(error: PipelineError) -> Self {
        match error {
            PipelineError::NotSent => Self::unavailable(
                "memcached closed the connection before the commands were sent: expected it to stay open; see its log for the reason",
            ),
            PipelineError::Timeout => Self::timeout(),
            PipelineError::Ended(why) => Self::unavailable(why),
        }
    }
}

/// A call in flight.
pub(super) struct PendingCommands {
    /// Number of commands.
    pub(super) count: usize,
    /// The responses so far.
    pub(super) responses: Responses,
    pub(super) since: Timestamp,
    pub(super) done: oneshot::Sender<Result<Responses, PipelineError>>,
}

/// Commands that have not been sent yet.
#[derive(Default)]
pub(super) struct SendQueue {
    pub(super) bytes: Vec<u8>,
    pub(super) calls: VecDeque<PendingCommands>,
    pub(super) is_closed: bool,
    /// Wakes the driver, while it has nothing to send.
    pub(super) idle: Option<Waker>,
}

/// The state that calls and the driver share.
#[derive(Default)]
pub(super) struct PipelineState {
    queue: Mutex<SendQueue>,
    /// A copy of the flag in the queue, to be read without the lock.
    is_closed: AtomicBool,
}

impl PipelineState {
    pub(super) fn queue(&self) -> MutexGuard<'_, SendQueue> {
        // Nothing panics while the lock is held.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the connection to new calls; those in the queue fail as not sent.
    pub(super) fn close(&self) {
        let (calls, idle) = {
            let mut queue = self.queue();
            queue.is_closed = true;
            self.is_closed.store(true, Ordering::Release);
            queue.bytes = Vec::new();
            (std::mem::take(&mut queue.calls), queue.idle.take())
        };
        for call in calls {
            let _ = call.done.send(Err(PipelineError::NotSent));
        }
        if let Some(idle) = idle {
            idle.wake();
        }
    }
}

/// The server's Unix time in seconds, and the local time at which it was requested.
#[derive(Clone, Copy)]
pub(super) struct ServerTime {
    pub(super) seconds: u64,
    pub(super) at: Timestamp,
}

/// A pipelined connection. It is closed when this is dropped.
pub(super) struct Pipeline {
    state: Arc<PipelineState>,
    /// Unique among the connections of a process.
    pub(super) id: u64,
    clock: TokioClock,
    server_time: Mutex<ServerTime>,
    /// The item size limit of the server in bytes.
    pub(super) max_item_size: u64,
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.state.close();
    }
}

impl Pipeline {
    /// Spawns the driver of a stream.
    pub(super) fn new(stream: TcpStream, id: u64, response_timeout: Duration) -> Self {
        let (state, clock) = (Arc::<PipelineState>::default(), TokioClock::new());
        let driver = Driver::new(stream, Arc::clone(&state), clock, response_timeout);
        tokio::spawn(driver);
        Self {
            state,
            id,
            clock,
            server_time: Mutex::new(ServerTime {
                seconds: 0,
                at: clock.now(),
            }),
            max_item_size: u64::MAX,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.is_closed.load(Ordering::Acquire)
    }

    pub(super) fn set_server_time(&self, time: ServerTime) {
        *self.server_time() = time;
    }

    fn server_time(&self) -> MutexGuard<'_, ServerTime> {
        self.server_time
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an upper bound of the server's Unix time in seconds. The rates of the two clocks may differ by a thousandth.
    fn latest_server_time(&self) -> u64 {
        let ServerTime { seconds, at } = *self.server_time();
        let since = self.clock.now().saturating_since(at).as_secs();
        seconds.saturating_add(since + since / 1000 + 2)
    }

    /// Returns the server's Unix time, to within a second or so; `None` if it was requested too long ago.
    pub(super) fn server_now(&self) -> Option<Timestamp> {
        /// So much may this machine have been suspended since, for which its own clock stands still.
        const MOST: Duration = Duration::from_secs(60);
        let ServerTime { seconds, at } = *self.server_time();
        let since = self.clock.now().saturating_since(at);
        // The server tells whole seconds.
        let now = Duration::from_secs(seconds)
            .saturating_add(Duration::from_millis(500))
            .saturating_add(since);
        (since < MOST).then(|| Timestamp::from_nanos(0).saturating_add(now))
    }

    /// Sends commands and returns their responses.
    pub(super) async fn send(
        &self,
        write: impl FnOnce(&mut Commands<'_>),
    ) -> Result<Responses, PipelineError> {
        let (done, responses) = oneshot::channel();
        let since = self.clock.now();
        let server_now = || self.latest_server_time();
        let idle = {
            let mut queue = self.state.queue();
            if queue.is_closed {
                return Err(PipelineError::NotSent);
            }
            let mut commands = Commands::new(&mut queue.bytes, &server_now);
            write(&mut commands);
            let count = commands.count();
            queue.calls.push_back(PendingCommands {
                count,
                responses: Responses::new(),
                since,
                done,
            });
            queue.idle.take()
        };
        if let Some(idle) = idle {
            idle.wake();
        }
        let driver_gone = || {
            PipelineError::Ended("the runtime of the memcached connection has shut down".to_owned())
        };
        responses.await.unwrap_or_else(|_| Err(driver_gone()))
    }
}
