//! Reading a body to its end in the background, within bounds.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Buf;
use http_body::Body;
use tokio::{runtime::Handle, task::yield_now, time::timeout};

use super::stats::{Counters, DrainStats};

const MAX_IN_FLIGHT: u64 = 256;
const MAX_BYTES: u64 = 32 << 20;
const MAX_TIME: Duration = Duration::from_secs(30);
const MAX_SILENCE: Duration = Duration::from_secs(5);

/// The bodies that a responder and its clones read.
#[derive(Debug, Default)]
pub(super) struct Drains {
    counters: Counters,
    in_flight: AtomicU64,
}

impl Drains {
    pub(super) fn stats(&self) -> DrainStats {
        self.counters.read(self.in_flight.load(Ordering::Relaxed))
    }

    /// Reads a body in the background and throws it away; drops it if there is no runtime, or too many others are read.
    pub(super) fn start<B: Body + Send + 'static>(self: &Arc<Self>, body: B) {
        let Ok(runtime) = Handle::try_current() else {
            self.counters.no_runtime.add(1);
            return;
        };
        let Some(slot) = Slot::take(self) else {
            self.counters.crowded.add(1);
            return;
        };
        self.counters.started.add(1);
        runtime.spawn(async move {
            let end = timeout(MAX_TIME, read_to_end(body)).await;
            slot.free(end.unwrap_or(End::GivenUp));
        });
    }
}

/// The end of a body.
#[derive(Clone, Copy, Debug)]
enum End {
    Finished,
    Failed,
    GivenUp,
}

/// One of the places for bodies, freed when dropped.
struct Slot {
    drains: Arc<Drains>,
    /// `Failed` until the task has ended, so also if it panics or its runtime shuts down.
    end: End,
}

impl Slot {
    fn take(drains: &Arc<Drains>) -> Option<Self> {
        // Relaxed: the number orders nothing.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let next = |taken| (taken < MAX_IN_FLIGHT).then_some(taken + 1);
        drains.in_flight.fetch_update(set, fetch, next).ok()?;
        Some(Self {
            drains: Arc::clone(drains),
            end: End::Failed,
        })
    }

    fn free(mut self, end: End) {
        self.end = end;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let counters = &self.drains.counters;
        let counter = match self.end {
            End::Finished => &counters.finished,
            End::Failed => &counters.failed,
            End::GivenUp => &counters.given_up,
        };
        counter.add(1);
        self.drains.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn read_to_end<B: Body>(body: B) -> End {
    let mut body = pin!(body);
    let mut left = MAX_BYTES;
    loop {
        let read = timeout(MAX_SILENCE, next_bytes(body.as_mut())).await;
        match read {
            Ok(Some(Ok(bytes))) => match left.checked_sub(bytes) {
                None => return End::GivenUp,
                // The next frame may be an error instead: hyper reports one if the client hangs up right after its last byte.
                Some(_) if body.is_end_stream() => return End::Finished,
                Some(rest) => left = rest,
            },
            Ok(Some(Err(()))) => return End::Failed,
            Ok(None) => return End::Finished,
            Err(_) => return End::GivenUp,
        }
    }
}

/// Returns the number of bytes in the next frame that has some; `None` at the end of the body.
async fn next_bytes<B: Body>(mut body: Pin<&mut B>) -> Option<Result<u64, ()>> {
    loop {
        // Counted within the poll: the task needs a body that is `Send`, but no such data and errors.
        let bytes = poll_fn(|cx| {
            body.as_mut().poll_frame(cx).map(|frame| {
                frame.map(|frame| {
                    let frame = frame.map_err(|_| ())?;
                    Ok(frame.data_ref().map_or(0, Buf::remaining) as u64)
                })
            })
        });
        let bytes = bytes.await?;
        // A body that is always ready would keep the thread, and the deadlines from being noticed.
        yield_now().await;
        if bytes != Ok(0) {
            return Some(bytes);
        }
    }
}
