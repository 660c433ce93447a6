//! The task that writes and reads for all who share a connection.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

use super::{
    answer::Answer,
    link::{Failure, Shared, Waiter},
};
use crate::time::{Clock, TokioClock};

/// How much is read at once, in bytes.
const READ: usize = 16 * 1024;
/// A buffer that a large value has made larger than this is given back.
const ROOM: usize = 256 * 1024;

/// Ends with its connection, or with all who could use it.
pub(super) struct Driver {
    stream: TcpStream,
    shared: Arc<Shared>,
    clock: TokioClock,
    response_timeout: Duration,
    /// What goes out, and how much of it has.
    out: Vec<u8>,
    written: usize,
    /// What came in, up to `filled`, and how much of it has been read as answers.
    input: Vec<u8>,
    filled: usize,
    consumed: usize,
    /// Whose commands have gone out, at least in part.
    sent: VecDeque<Waiter>,
    /// When the oldest of them has waited for too long.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Whether others who can run have been let run before the next write.
    has_yielded: bool,
}

impl Driver {
    pub(super) fn new(
        stream: TcpStream,
        shared: Arc<Shared>,
        clock: TokioClock,
        response_timeout: Duration,
    ) -> Self {
        Self {
            stream,
            shared,
            clock,
            response_timeout,
            out: Vec::new(),
            written: 0,
            input: vec![0; READ],
            filled: 0,
            consumed: 0,
            sent: VecDeque::new(),
            deadline: None,
            has_yielded: false,
        }
    }

    /// Reads what has come, and tells those who wait for it.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        loop {
            let mut room = ReadBuf::new(&mut self.input[self.filled..]);
            match Pin::new(&mut self.stream).poll_read(cx, &mut room) {
                Poll::Pending => return Ok(()),
                Poll::Ready(read) => read.map_err(ended)?,
            }
            let length = room.filled().len();
            if length == 0 {
                return Err(ended(
                    "memcached closed the connection: expected it to stay open; see why in its log",
                ));
            }
            self.filled += length;
            self.tell()?;
        }
    }

    fn tell(&mut self) -> Result<(), Failure> {
        while let Some((answer, length)) = Answer::read(&self.input[self.consumed..self.filled])
            .map_err(|garbage| ended(format!("memcached answered {:?}: expected an answer by its protocol; see that a memcached of version 1.6 or later listens at that port", garbage.0)))?
        {
            self.consumed += length;
            let over = is_over(&answer);
            let Some(waiter) = self.sent.front_mut() else {
                return Err(ended(format!("memcached answered unasked: {answer:?}, where nothing was expected; see that a memcached of version 1.6 or later listens at that port")));
            };
            waiter.answers.push(answer);
            if (waiter.answers.len() == waiter.expects || over.is_some())
                && let Some(waiter) = self.sent.pop_front() {
                    let _ = waiter.done.send(Ok(waiter.answers));
                }
            if let Some(why) = over {
                return Err(ended(why));
            }
        }
        // What is left is the beginning of an answer.
        self.input.copy_within(self.consumed..self.filled, 0);
        self.filled -= self.consumed;
        self.consumed = 0;
        if self.filled == self.input.len() {
            self.input.resize(self.input.len() * 2, 0);
        } else if self.filled == 0 && self.input.len() > ROOM {
            self.input = vec![0; READ];
        }
        Ok(())
    }

    /// Writes what is asked. Ready when nobody can ask any more.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        loop {
            while self.written < self.out.len() {
                let left = &self.out[self.written..];
                match ready!(Pin::new(&mut self.stream).poll_write(cx, left)) {
                    Ok(length) => self.written += length,
                    Err(error) => return Poll::Ready(Err(ended(error))),
                }
            }
            self.out.clear();
            self.out.shrink_to(ROOM);
            self.written = 0;
            let mut queue = self.shared.queue();
            if queue.is_closed {
                return Poll::Ready(Ok(()));
            }
            if queue.bytes.is_empty() {
                queue.idle = Some(cx.waker().clone());
                self.has_yielded = false;
                return Poll::Pending;
            }
            if !self.has_yielded {
                // Whoever can run may have something to send as well: one write for all of them.
                self.has_yielded = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.has_yielded = false;
            std::mem::swap(&mut self.out, &mut queue.bytes);
            self.sent.append(&mut queue.waiters);
        }
    }

    /// Whether the server has been silent for too long.
    fn watch(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
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
                return Err(Failure::Silent);
            }
            self.deadline = Some(Box::pin(sleep(left)));
        }
    }

    fn end(&mut self, failure: &Failure) {
        for waiter in self.sent.drain(..) {
            let _ = waiter.done.send(Err(failure.clone()));
        }
        self.shared.close();
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let step = this.read(cx).and_then(|()| match this.write(cx) {
            Poll::Ready(done) => done.map(|()| true),
            Poll::Pending => this.watch(cx).map(|()| false),
        });
        match step {
            Ok(false) => Poll::Pending,
            Ok(true) => Poll::Ready(()),
            Err(failure) => {
                this.end(&failure);
                Poll::Ready(())
            }
        }
    }
}

impl Drop for Driver {
    /// Its runtime may end before it does.
    fn drop(&mut self) {
        self.end(&ended("the runtime that asked memcached is shut down: expected it to outlive the call; keep it until the last answer"));
    }
}

fn ended(why: impl ToString) -> Failure {
    Failure::Ended(why.to_string())
}

/// Why nobody can say what the server answers next: after an error line, unless it is known to be all that it says.
fn is_over(answer: &Answer) -> Option<String> {
    let Answer::Error(line) = answer else {
        return None;
    };
    let is_known = line == NO_NUMBER || line.starts_with(TOO_LARGE) || is_no_memory(line);
    (!is_known).then(|| {
        format!("memcached answered {line:?} where no error was expected; see why in its log")
    })
}

/// To an addition.
pub(super) const NO_NUMBER: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";
/// To a write; its value is read and thrown away.
pub(super) const TOO_LARGE: &str = "SERVER_ERROR object too large";
/// To a write, and to an addition that makes a counter: each command says it in other words.
pub(super) fn is_no_memory(line: &str) -> bool {
    line.starts_with("SERVER_ERROR") && line.to_ascii_lowercase().contains("out of memory")
}
