//! One connection that all calls share. Responses arrive in the order of the commands.
//!
//! A call whose future is dropped stays in the queue: its response is read and discarded, so that
//! no call reads the response of another.
//!
//! `async-memcached` 0.9 carries one call per connection and needs two round trips for an addition
//! with reads; all calls of this one share a connection.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::oneshot,
    time::{Sleep, sleep, timeout},
};

use super::protocol::{Commands, NOT_A_NUMBER, Response, TOO_LARGE, is_out_of_memory};
use crate::{
    locks::lock,
    store::StoreError,
    time::{Clock, LeaseClock, Timestamp, TokioClock},
};

/// A pipelined connection. It is closed when this is dropped.
pub(super) struct Pipeline {
    state: Arc<PipelineState>,
    /// Unique among the connections of a process.
    pub(super) id: u64,
    clock: TokioClock,
    server_time: Mutex<ServerTime>,
    /// The time after which commands that have no response, or were not taken by the driver, show
    /// that its runtime does not run it.
    patience: Duration,
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
                at: LeaseClock.now(),
            }),
            patience: response_timeout.saturating_mul(2),
            max_item_size: u64::MAX,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.is_closed.load(Ordering::Acquire)
    }

    pub(super) fn set_server_time(&self, time: ServerTime) {
        *self.server_time() = time;
    }

    fn server_time(&self) -> MutexGuard<'_, ServerTime> {
        lock(&self.server_time)
    }

    /// Returns an upper bound of the server's Unix time in seconds, for clocks whose rates differ
    /// by up to a thousandth.
    fn latest_server_time(&self) -> u64 {
        let ServerTime { seconds, at } = *self.server_time();
        let since = LeaseClock.now().saturating_since(at).as_secs();
        seconds.saturating_add(since + since / 1000 + 2)
    }

    /// Returns the server's Unix time, to within a second or so; `None` if it was requested too
    /// long ago.
    pub(super) fn server_now(&self) -> Option<Timestamp> {
        /// Maximum age of the server's time: the rates of the two clocks differ.
        const MAX_AGE: Duration = Duration::from_secs(60);
        let ServerTime { seconds, at } = *self.server_time();
        let since = LeaseClock.now().saturating_since(at);
        // The server reports whole seconds; half a second more is the middle.
        let now = Duration::from_secs(seconds)
            .saturating_add(Duration::from_millis(500))
            .saturating_add(since);
        (since < MAX_AGE).then(|| Timestamp::from_nanos(0).saturating_add(now))
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
            let oldest = queue.calls.front();
            if oldest.is_some_and(|call| since.saturating_since(call.since) > self.patience) {
                drop(queue);
                // The next connection is one of the runtime of its first caller.
                self.state.close();
                return Err(PipelineError::NotSent);
            }
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
        // The driver has a timeout of its own, unless nobody drives it.
        match timeout(self.patience, responses).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(driver_gone()),
            Err(_) => {
                self.state.close();
                Err(PipelineError::Timeout)
            }
        }
    }
}

/// The server's Unix time in seconds, and the time of [`LeaseClock`] at which it was requested:
/// that clock goes on while this machine is suspended.
#[derive(Clone, Copy)]
pub(super) struct ServerTime {
    pub(super) seconds: u64,
    pub(super) at: Timestamp,
}

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

impl From<PipelineError> for StoreError {
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
struct PendingCommands {
    /// Number of commands.
    count: usize,
    /// The responses so far.
    responses: Responses,
    since: Timestamp,
    done: oneshot::Sender<Result<Responses, PipelineError>>,
}

/// Commands that have not been sent yet.
#[derive(Default)]
struct SendQueue {
    bytes: Vec<u8>,
    calls: VecDeque<PendingCommands>,
    is_closed: bool,
    /// Wakes the driver, while it has nothing to send.
    idle: Option<Waker>,
}

/// The state that calls and the driver share.
#[derive(Default)]
struct PipelineState {
    queue: Mutex<SendQueue>,
    /// A copy of the flag in the queue, to be read without the lock.
    is_closed: AtomicBool,
}

impl PipelineState {
    fn queue(&self) -> MutexGuard<'_, SendQueue> {
        // Nothing panics while the lock is held.
        lock(&self.queue)
    }

    /// Closes the connection to new calls; those in the queue fail as not sent.
    fn close(&self) {
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

/// Initial size of the input buffer in bytes.
const INPUT_SIZE: usize = 16 * 1024;
/// Buffers that a large value made larger than this are shrunk.
const MAX_BUFFER: usize = 256 * 1024;

/// The future of the task. It ends when the connection ends or its [`Pipeline`] is dropped.
struct Driver {
    stream: TcpStream,
    state: Arc<PipelineState>,
    clock: TokioClock,
    response_timeout: Duration,
    /// Output, and the number of bytes that are written.
    out: Vec<u8>,
    written: usize,
    /// Input, filled up to `filled` and parsed up to `consumed`.
    input: Vec<u8>,
    filled: usize,
    consumed: usize,
    /// Calls whose commands were sent, at least in part.
    sent: VecDeque<PendingCommands>,
    /// The response timeout of the oldest of them.
    deadline: Option<Pin<Box<Sleep>>>,
    /// `true` if other tasks have been given a turn before the next write.
    has_yielded: bool,
}

impl Driver {
    fn new(
        stream: TcpStream,
        state: Arc<PipelineState>,
        clock: TokioClock,
        response_timeout: Duration,
    ) -> Self {
        Self {
            stream,
            state,
            clock,
            response_timeout,
            out: Vec::new(),
            written: 0,
            input: vec![0; INPUT_SIZE],
            filled: 0,
            consumed: 0,
            sent: VecDeque::new(),
            deadline: None,
            has_yielded: false,
        }
    }

    /// Reads the available input, and completes calls.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), PipelineError> {
        loop {
            let mut free = ReadBuf::new(&mut self.input[self.filled..]);
            match Pin::new(&mut self.stream).poll_read(cx, &mut free) {
                Poll::Pending => return Ok(()),
                Poll::Ready(read) => read.map_err(ended)?,
            }
            let length = free.filled().len();
            if length == 0 {
                return Err(ended(
                    "memcached closed the connection: expected it to stay open; see its log for the reason",
                ));
            }
            self.filled += length;
            self.complete_calls()?;
        }
    }

    /// Parses the input, and completes the calls whose responses are complete.
    fn complete_calls(&mut self) -> Result<(), PipelineError> {
        while let Some((response, length)) = Response::parse(&self.input[self.consumed..self.filled])
            .map_err(|error| ended(format!("memcached answered {:?}: expected a response of its protocol; check that memcached 1.6 or later listens on that port", error.0)))?
        {
            self.consumed += length;
            let fatal = fatal_error(&response);
            let Some(call) = self.sent.front_mut() else {
                return Err(ended(format!("memcached sent {response:?} without a command, where nothing was expected; check that memcached 1.6 or later listens on that port")));
            };
            call.responses.push(response);
            if (call.responses.len() == call.count || fatal.is_some())
                && let Some(call) = self.sent.pop_front() {
                    let _ = call.done.send(Ok(call.responses));
                }
            if let Some(why) = fatal {
                return Err(ended(why));
            }
        }
        // The rest is the beginning of a response.
        self.input.copy_within(self.consumed..self.filled, 0);
        self.filled -= self.consumed;
        self.consumed = 0;
        if self.filled == self.input.len() {
            self.input.resize(self.input.len() * 2, 0);
        } else if self.filled == 0 && self.input.len() > MAX_BUFFER {
            self.input = vec![0; INPUT_SIZE];
        }
        Ok(())
    }

    /// Writes queued commands. Ready when the pipeline was dropped.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PipelineError>> {
        loop {
            while self.written < self.out.len() {
                let left = &self.out[self.written..];
                match ready!(Pin::new(&mut self.stream).poll_write(cx, left)) {
                    Ok(length) => self.written += length,
                    Err(error) => return Poll::Ready(Err(ended(error))),
                }
            }
            self.out.clear();
            self.out.shrink_to(MAX_BUFFER);
            self.written = 0;
            let mut queue = self.state.queue();
            if queue.is_closed {
                return Poll::Ready(Ok(()));
            }
            if queue.bytes.is_empty() {
                queue.idle = Some(cx.waker().clone());
                self.has_yielded = false;
                return Poll::Pending;
            }
            if !self.has_yielded {
                // Other tasks may have commands to send too: one write for all of them.
                self.has_yielded = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.has_yielded = false;
            std::mem::swap(&mut self.out, &mut queue.bytes);
            self.sent.append(&mut queue.calls);
        }
    }

    /// Checks the response timeout of the oldest call.
    fn check_timeout(&mut self, cx: &mut Context<'_>) -> Result<(), PipelineError> {
        loop {
            if let Some(deadline) = &mut self.deadline
                && deadline.as_mut().poll(cx).is_pending()
            {
                return Ok(());
            }
            let Some(oldest) = self.sent.front() else {
                self.deadline = None;
                return Ok(());
            };
            let waited = self.clock.now().saturating_since(oldest.since);
            let left = self.response_timeout.saturating_sub(waited);
            if left.is_zero() {
                return Err(PipelineError::Timeout);
            }
            self.deadline = Some(Box::pin(sleep(left)));
        }
    }

    /// Fails all calls, and closes the connection.
    fn end(&mut self, error: &PipelineError) {
        for call in self.sent.drain(..) {
            let _ = call.done.send(Err(error.clone()));
        }
        self.state.close();
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let step = this.read(cx).and_then(|()| match this.write(cx) {
            Poll::Ready(done) => done.map(|()| true),
            Poll::Pending => this.check_timeout(cx).map(|()| false),
        });
        match step {
            Ok(false) => Poll::Pending,
            Ok(true) => Poll::Ready(()),
            Err(error) => {
                this.end(&error);
                Poll::Ready(())
            }
        }
    }
}

impl Drop for Driver {
    /// The runtime may shut down before the connection ends.
    fn drop(&mut self) {
        self.end(&ended("the runtime of the memcached connection has shut down: expected it to outlive the call; shut it down after the last answer"));
    }
}

fn ended(why: impl ToString) -> PipelineError {
    PipelineError::Ended(why.to_string())
}

/// Returns the reason to close the connection after an error response. After an unknown error, it
/// is not clear to which command the next response belongs.
fn fatal_error(response: &Response) -> Option<String> {
    let Response::Error(line) = response else {
        return None;
    };
    let is_known = line == NOT_A_NUMBER || line.starts_with(TOO_LARGE) || is_out_of_memory(line);
    (!is_known).then(|| {
        format!(
            "memcached answered {line:?} where no error was expected; see its log for the reason"
        )
    })
}
