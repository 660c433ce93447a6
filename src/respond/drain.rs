//! Reads the rest of refused uploads, so that their clients get the answer.
//!
//! `DrainBodies` is a responder of its own type. Responders take bodies of all types, and to read
//! one in a task needs a body that is `Send` and `'static`. On `Http` itself that bound would be
//! one for all users, also those without tokio; to try axum's and tonic's bodies by their type at
//! run time would read those bodies and silently no other. The bounds are of a responder with its
//! clones, so that an application decides which layers share them, and so that the counters have a
//! name.

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
use http::{Request, Version, header::EXPECT};
use http_body::Body;
use tokio::{runtime::Handle, task::yield_now, time::timeout};

use super::{Http, Refusal, RefuseLate, Respond};
use crate::{outcome::Outcome, permit::Permit, stats::stats};

/// Refuses as another responder does, and reads the rest of a refused HTTP/1 upload, so that its
/// client gets the answer.
///
/// If a server answers an upload and closes the connection before it has read all of it, the kernel
/// sends a reset. A client that reads the answer after it has sent everything then sees a broken
/// connection in place of the 429, and many retry at once. Hyper, and so axum, closes the
/// connection if a request is refused without reading its body. Of 40 refused uploads of 20 MB,
/// this many got their answer:
///
/// | client | by default | with this responder |
/// |---|---|---|
/// | Python's `http.client`, `urllib` | 0 | 40 |
/// | Node's `fetch` | 28 to 32 | 40 |
/// | curl without `Expect` | 36 to 39 | 40 |
/// | curl, which sends `Expect: 100-continue` | 40 | 40 |
///
/// A tokio task reads the body and discards it. The response does not wait for it, and the
/// connection can be used again afterwards.
///
/// | | bound |
/// |---|---|
/// | bodies at once, of a responder and its clones | 256 |
/// | bytes of one body | 32 MiB |
/// | time for one body | 30 s |
/// | time without a byte of it | 5 s |
///
/// Beyond a bound a body is dropped, as it is by default. A body that is longer than 32 MiB is read
/// up to there, also if its `Content-Length` says so: clients that read while they send, such as
/// curl and Node's `fetch`, have their answer by then. (Of 40 uploads of 60 MB, all those of
/// `fetch` got it, and 28 by default; those of Python none.) To share the bounds and the
/// [counters](Self::stats) between layers, give them clones of one responder.
///
/// # Bodies that are not read
///
/// - Those of admitted requests: they are the handler's.
/// - Those over HTTP/2 and HTTP/3, so all of tonic's: only the request's stream is reset there, and
///   the answer arrives.
/// - Those of requests with the field `Expect`: the client waits for the answer before it sends.
/// - Those that are known to be empty.
/// - Those that are refused outside of a runtime of tokio. The runtime needs its timer enabled:
///   without it, reading a body panics in its task, and counts as `failed`.
///
/// # Costs
///
/// [Operations](crate::operations#refused-uploads) has what an attacker can make it cost. Put the
/// limit outside of layers that decompress requests: inside of them, the bytes are counted after
/// decompression, and decompression takes processor time. A graceful shutdown waits for connections
/// whose body is being read, for up to 30 s.
///
/// # Examples
///
/// ```
/// use axum::{Router, extract::DefaultBodyLimit, routing::post};
/// use tollgate::{prelude::*, respond::{Headers, Http}};
///
/// // The last setter, as it returns another type.
/// let respond = Http::new().headers(Headers::Legacy).drain_bodies();
/// let limit = RateLimitLayer::new(TokenBucket::per_minute(10))
///     .key(PeerIp::new())
///     .respond(respond.clone());
/// let app: Router = Router::new()
///     .route("/files", post(async |body: axum::body::Bytes| format!("{} bytes\n", body.len())))
///     .layer(DefaultBodyLimit::max(32 << 20))
///     .layer(limit);
///
/// // For your metrics.
/// assert_eq!(respond.stats().started, 0);
/// # let _ = app;
/// ```
///
/// It takes any responder that answers requests of all body types:
///
/// ```
/// use tollgate::respond::{DrainBodies, Grpc};
///
/// // For gRPC-Web over HTTP/1.
/// let respond = DrainBodies::new(Grpc::new());
/// # let _ = respond;
/// ```
#[doc(alias("linger", "lingering close", "upload", "connection reset"))]
#[derive(Clone, Debug)]
pub struct DrainBodies<R = Http> {
    respond: R,
    drains: Arc<Drains>,
}

impl<R> DrainBodies<R> {
    /// Creates a responder that refuses as `respond` does. [`Http::drain_bodies`] is the same for
    /// `Http`.
    pub fn new(respond: R) -> Self {
        Self {
            respond,
            drains: Arc::default(),
        }
    }

    /// Returns the counters of this responder and its clones.
    pub fn stats(&self) -> DrainStats {
        self.drains.stats()
    }
}

impl<M> Http<M> {
    /// Reads the rest of refused uploads over HTTP/1, so that their clients get the answer and no
    /// reset.
    ///
    /// The body is read in the background and thrown away, within [bounds](DrainBodies) on time,
    /// bytes and number. Call it after the other setters. Needs a request body that is `Send`, as
    /// axum's and hyper's are.
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    #[must_use]
    pub fn drain_bodies(self) -> DrainBodies<Self> {
        DrainBodies::new(self)
    }
}

impl<B, Res, E, R> Respond<Request<B>, Res, E> for DrainBodies<R>
where
    B: Body + Send + 'static,
    R: Respond<Request<B>, Res, E> + Respond<Request<()>, Res, E>,
{
    type Annotation = <R as Respond<Request<B>, Res, E>>::Annotation;

    #[inline]
    fn wants_outcome(&self) -> bool {
        <R as Respond<Request<B>, Res, E>>::wants_outcome(&self.respond)
    }

    fn admit(&self, req: &mut Request<B>, outcome: Outcome) -> Self::Annotation {
        self.respond.admit(req, outcome)
    }

    #[inline]
    fn outer_outcome<'a>(&self, req: &'a Request<B>) -> Option<&'a Outcome> {
        <R as Respond<Request<B>, Res, E>>::outer_outcome(&self.respond, req)
    }

    fn annotate(annotation: Self::Annotation, res: &mut Res) {
        <R as Respond<Request<B>, Res, E>>::annotate(annotation, res);
    }

    fn revise(&self, annotation: Self::Annotation, outcome: &Outcome) -> Self::Annotation {
        <R as Respond<Request<B>, Res, E>>::revise(&self.respond, annotation, outcome)
    }

    fn carry_permit(&self, req: &mut Request<B>, permit: &Permit) {
        <R as Respond<Request<B>, Res, E>>::carry_permit(&self.respond, req, permit);
    }

    fn attach_permit(permit: Permit, res: &mut Res) {
        <R as Respond<Request<B>, Res, E>>::attach_permit(permit, res);
    }

    fn refuse(&self, req: Request<B>, refusal: Refusal) -> Result<Res, E> {
        if !is_unread_upload(&req) {
            return self.respond.refuse(req, refusal);
        }
        let (parts, body) = req.into_parts();
        self.drains.start(body);
        self.respond.refuse(Request::from_parts(parts, ()), refusal)
    }
}

impl<Res, E, R: RefuseLate<Res, E>> RefuseLate<Res, E> for DrainBodies<R> {
    // The handler has had the body.
    fn refuse_late(&self, res: Res, refusal: Refusal) -> Result<Res, E> {
        self.respond.refuse_late(res, refusal)
    }
}

/// Returns `true` if the client may be sending a body regardless of the answer.
fn is_unread_upload<B: Body>(req: &Request<B>) -> bool {
    let body = req.body();
    req.version() <= Version::HTTP_11
        // Without an interim response the client may never send it, and then sends its next
        // request.
        && !req.headers().contains_key(EXPECT)
        && !body.is_end_stream()
        && body.size_hint().exact() != Some(0)
}

stats! {
    /// Counters of a [`DrainBodies`] and its clones since it was made.
    ///
    /// `started` is the sum of `finished`, `failed`, `given_up` and `in_flight`.
    ///
    /// ```
    /// use tollgate::respond::DrainStats;
    ///
    /// /// Uploads that were refused, and whose clients may have seen a reset instead.
    /// fn without_answer(stats: &DrainStats) -> u64 {
    ///     stats.given_up + stats.crowded + stats.no_runtime
    /// }
    /// # assert_eq!(without_answer(&DrainStats::default()), 0);
    /// ```
    pub struct DrainStats {
        counted {
            /// Bodies whose reading began.
            started,
            /// Bodies that were read to their end.
            finished = "tollgate_refused_bodies_total"["outcome" = "finished"],
            /// Bodies that ended with an error, as when the client hangs up, with a panic, or with
            /// their runtime.
            failed = "tollgate_refused_bodies_total"["outcome" = "failed"],
            /// Bodies that were dropped after 30 s, 5 s without a byte, or 32 MiB.
            given_up = "tollgate_refused_bodies_total"["outcome" = "given_up"],
            /// Bodies that were dropped unread, because 256 others were being read.
            crowded = "tollgate_refused_bodies_total"["outcome" = "over_capacity"],
            /// Bodies that were dropped unread, because the call was outside of a runtime of tokio.
            no_runtime = "tollgate_refused_bodies_total"["outcome" = "no_runtime"],
        }
        given {
            /// Bodies of refused requests that are being read.
            in_flight: u64 = "tollgate_refused_bodies_in_flight",
        }
    }
    struct DrainCounters;
}

const MAX_IN_FLIGHT: u64 = 256;
const MAX_BYTES: u64 = 32 << 20;
const MAX_TIME: Duration = Duration::from_secs(30);
const MAX_SILENCE: Duration = Duration::from_secs(5);

/// The bodies that a responder and its clones are reading.
#[derive(Debug, Default)]
struct Drains {
    counters: DrainCounters,
    in_flight: AtomicU64,
}

impl Drains {
    fn stats(&self) -> DrainStats {
        self.counters.read(self.in_flight.load(Ordering::Relaxed))
    }

    /// Reads a body in the background and discards it. Drops it unread without a runtime, and
    /// beyond the bound on bodies.
    fn start<B: Body + Send + 'static>(self: &Arc<Self>, body: B) {
        let Ok(runtime) = Handle::try_current() else {
            self.counters.no_runtime.add(1);
            return;
        };
        let Some(slot) = DrainSlot::take(self) else {
            self.counters.crowded.add(1);
            return;
        };
        self.counters.started.add(1);
        runtime.spawn(async move {
            let end = timeout(MAX_TIME, read_to_end(body)).await;
            slot.free(end.unwrap_or(BodyEnd::GivenUp));
        });
    }
}

/// The reason why the reading of a body ended.
#[derive(Clone, Copy, Debug)]
enum BodyEnd {
    Finished,
    Failed,
    GivenUp,
}

/// One of the slots for bodies in flight, freed when dropped.
struct DrainSlot {
    drains: Arc<Drains>,
    /// `Failed` until the task has ended, and thus also if it panics or its runtime shuts down.
    end: BodyEnd,
}

impl DrainSlot {
    fn take(drains: &Arc<Drains>) -> Option<Self> {
        // Relaxed: the number orders nothing.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let next = |taken| (taken < MAX_IN_FLIGHT).then_some(taken + 1);
        drains.in_flight.fetch_update(set, fetch, next).ok()?;
        Some(Self {
            drains: Arc::clone(drains),
            end: BodyEnd::Failed,
        })
    }

    fn free(mut self, end: BodyEnd) {
        self.end = end;
    }
}

impl Drop for DrainSlot {
    fn drop(&mut self) {
        let counters = &self.drains.counters;
        let counter = match self.end {
            BodyEnd::Finished => &counters.finished,
            BodyEnd::Failed => &counters.failed,
            BodyEnd::GivenUp => &counters.given_up,
        };
        counter.add(1);
        self.drains.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn read_to_end<B: Body>(body: B) -> BodyEnd {
    let mut body = pin!(body);
    let mut left = MAX_BYTES;
    loop {
        let read = timeout(MAX_SILENCE, next_bytes(body.as_mut())).await;
        match read {
            Ok(Some(Ok(bytes))) => match left.checked_sub(bytes) {
                None => return BodyEnd::GivenUp,
                // The next frame may be an error instead: hyper reports one if the client hangs up
                // right after its last byte.
                Some(_) if body.is_end_stream() => return BodyEnd::Finished,
                Some(rest) => left = rest,
            },
            Ok(Some(Err(()))) => return BodyEnd::Failed,
            Ok(None) => return BodyEnd::Finished,
            Err(_) => return BodyEnd::GivenUp,
        }
    }
}

/// Returns the number of bytes in the next frame that has some; `None` at the end of the body.
async fn next_bytes<B: Body>(mut body: Pin<&mut B>) -> Option<Result<u64, ()>> {
    loop {
        // Counted within the poll: the task needs a body that is `Send`, but no such data and
        // errors.
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
