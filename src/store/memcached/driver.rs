//! The task that writes commands and reads responses of a connection.

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
    error::{NOT_A_NUMBER, TOO_LARGE, is_out_of_memory},
    pipeline::{PendingCommands, PipelineError, PipelineState},
    response::Response,
};
use crate::time::{Clock, TokioClock};

/// Initial size of the input buffer in bytes.
const INPUT_SIZE: usize = 16 * 1024;
/// Buffers that a large value made larger than this are shrunk.
const MAX_BUFFER: usize = 256 * 1024;

/// The future of the task. It ends when the connection ends or its [`Pipeline`](super::pipeline::Pipeline) is dropped.
pub(super) struct Driver {
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
    pub(super) fn new(
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

/// Returns the reason to close the connection after an error response. After an unknown error, it is not clear to which command
/// the next response belongs.
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
