//! One connection that all calls share: commands go out in the order in which they come, answers come back in the same.
//!
//! A call whose future is dropped leaves its place in the queue: its answer is read and thrown away, so that nobody
//! reads somebody else's.

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

use super::{answer::Answer, command::Commands, driver::Driver};
use crate::{
    store::Error,
    time::{Clock, Timestamp, TokioClock},
};

/// One answer to each command.
pub(super) type Answers = SmallVec<[Answer; 1]>;

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// Nothing was sent: the connection had ended before.
    NotSent,
    /// The server was silent for too long.
    Silent,
    /// The connection ended meanwhile, for this reason.
    Ended(String),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotSent => Self::unavailable(
                "memcached closed the connection before it was asked: expected it to stay open; see why in its log",
            ),
            Failure::Silent => Self::timeout(),
            Failure::Ended(why) => Self::unavailable(why),
        }
    }
}

/// Who waits for the answers to its commands.
pub(super) struct Waiter {
    pub(super) expects: usize,
    pub(super) answers: Answers,
    pub(super) since: Timestamp,
    pub(super) done: oneshot::Sender<Result<Answers, Failure>>,
}

/// What has not gone out yet.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) bytes: Vec<u8>,
    pub(super) waiters: VecDeque<Waiter>,
    pub(super) is_closed: bool,
    /// The driver's, while it has nothing to send.
    pub(super) idle: Option<Waker>,
}

#[derive(Default)]
pub(super) struct Shared {
    queue: Mutex<Queue>,
    /// As in the queue, for who only wants to know whether to ask.
    is_closed: AtomicBool,
}

impl Shared {
    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing in between can panic, and leave half of something behind.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connection for everybody who comes; those who wait are told that nothing was sent.
    pub(super) fn close(&self) {
        let (waiters, idle) = {
            let mut queue = self.queue();
            queue.is_closed = true;
            self.is_closed.store(true, Ordering::Release);
            queue.bytes = Vec::new();
            (std::mem::take(&mut queue.waiters), queue.idle.take())
        };
        for waiter in waiters {
            let _ = waiter.done.send(Err(Failure::NotSent));
        }
        if let Some(idle) = idle {
            idle.wake();
        }
    }
}

/// A connection; it ends when this is dropped.
pub(super) struct Link {
    shared: Arc<Shared>,
    /// No two connections of a process have the same.
    pub(super) number: u64,
    clock: TokioClock,
    /// The server's Unix time in seconds, and when it was that by our clock.
    pub(super) dated: (u64, Timestamp),
    /// The largest item that the server takes, in bytes.
    pub(super) largest: u64,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Link {
    /// Takes over a stream.
    pub(super) fn new(stream: TcpStream, number: u64, response_timeout: Duration) -> Self {
        let (shared, clock) = (Arc::<Shared>::default(), TokioClock::new());
        let driver = Driver::new(stream, Arc::clone(&shared), clock, response_timeout);
        tokio::spawn(driver);
        Self {
            shared,
            number,
            clock,
            dated: (0, clock.now()),
            largest: u64::MAX,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.shared.is_closed.load(Ordering::Acquire)
    }

    /// The server's Unix time in seconds, no less than it is: the two clocks may differ by a thousandth in their rates.
    fn server_time(&self) -> u64 {
        let (then, at) = self.dated;
        let since = self.clock.now().saturating_since(at).as_secs();
        then.saturating_add(since + since / 1000 + 2)
    }

    /// Sends commands, and waits for their answers.
    pub(super) async fn ask(
        &self,
        write: impl FnOnce(&mut Commands<'_>),
    ) -> Result<Answers, Failure> {
        let (done, answers) = oneshot::channel();
        let since = self.clock.now();
        let server_time = || self.server_time();
        let idle = {
            let mut queue = self.shared.queue();
            if queue.is_closed {
                return Err(Failure::NotSent);
            }
            let mut commands = Commands::new(&mut queue.bytes, &server_time);
            write(&mut commands);
            let expects = commands.count();
            queue.waiters.push_back(Waiter {
                expects,
                answers: Answers::new(),
                since,
                done,
            });
            queue.idle.take()
        };
        if let Some(idle) = idle {
            idle.wake();
        }
        let gone = || Failure::Ended("the runtime that asked memcached is shut down".to_owned());
        answers.await.unwrap_or_else(|_| Err(gone()))
    }
}
