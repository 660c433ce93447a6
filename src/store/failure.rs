//! What happens when a store cannot tell.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;

use super::{Ask, Backend, Check, Decisions, Error, Settlement, Store};
use crate::{
    clock::{Clock, SystemClock},
    decision::Decision,
    key::Key,
    outcome::Policy,
};

/// An error that can never happen: what a layer demands of its store.
///
/// Implemented for [`Infallible`] alone.
#[diagnostic::on_unimplemented(
    message = "a store that can fail (with `{Self}`) must say what happens then",
    label = "this store can fail",
    note = "`.fail_open()` lets requests pass while the store cannot tell, `.fail_closed()` refuses them with 503, \
            `.fall_back_to(local).share(1, nodes)` lets a local store decide; all come from \
            `tollgate::store::StoreExt`, which is in the prelude"
)]
pub trait NeverFails: sealed::Sealed {
    /// Proves it.
    fn never<T>(self) -> T;
}

impl NeverFails for Infallible {
    fn never<T>(self) -> T {
        match self {}
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for std::convert::Infallible {}
}

/// A store whose failures are answered: requests pass, or are turned away, as undecided.
///
/// Made by [`fail_open`](super::StoreExt::fail_open) and [`fail_closed`](super::StoreExt::fail_closed). A failed
/// `settle` or `reset` is counted and dropped.
///
/// # Contention
///
/// A store that [lost every race](Error::is_contended) for a key is there, and its client may be within its quota: that is
/// neither a failure nor a refusal, and is [counted](Self::contentions) apart. Unless
/// [told otherwise](Self::when_contended), it is answered as a failure is.
#[derive(Clone, Debug)]
pub struct OnFailure<S> {
    store: S,
    failed: Undecided,
    contended: Undecided,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    failures: AtomicU64,
    contentions: AtomicU64,
}

impl<S> OnFailure<S> {
    pub(super) fn new(store: S, failed: Undecided) -> Self {
        Self {
            store,
            failed,
            contended: failed,
            counts: Arc::default(),
        }
    }

    /// The same with another answer where every attempt lost its race.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{TokenBucket, prelude::*, store::{self, BoxStore, Undecided}};
    ///
    /// fn limited(remote: BoxStore<TokenBucket, store::Error>) {
    ///     // Open while the store is lost; who meets too many others on one key comes again in two seconds.
    ///     let store = remote.fail_open().when_contended(Undecided::RetryAfter(Duration::from_secs(2)));
    ///     let layer = RateLimitLayer::new(TokenBucket::per_second(10)).store(store);
    /// #   let _ = layer;
    /// }
    /// # let _: fn(_) = limited;
    /// ```
    #[must_use]
    pub fn when_contended(self, contended: Undecided) -> Self {
        Self { contended, ..self }
    }

    /// How often the store could not do what was asked of it, contention aside; all clones together.
    pub fn failures(&self) -> u64 {
        self.counts.failures.load(Ordering::Relaxed)
    }

    /// How often every attempt of the store lost its race; all clones together.
    pub fn contentions(&self) -> u64 {
        self.counts.contentions.load(Ordering::Relaxed)
    }

    fn fallback<T>(&self, failed: T, contended: T) -> Fallback<T> {
        Fallback {
            counts: Arc::clone(&self.counts),
            failed,
            contended,
        }
    }

    fn undecided(&self, count: usize) -> Fallback<Repeated> {
        let [failed, contended] =
            [self.failed, self.contended].map(|answer| Repeated { answer, count });
        self.fallback(failed, contended)
    }
}

/// What happens to a request that a store could not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Undecided {
    /// It passes.
    Open,
    /// It is turned away with 503 (gRPC: `UNAVAILABLE`).
    Closed,
    /// It is turned away in the same way, and told when to come again: by `Retry-After`, over gRPC by `RetryInfo` and
    /// `grpc-retry-pushback-ms`.
    ///
    /// Clients that are told the same come back together, unless a
    /// [`retry_jitter`](crate::respond::Http::retry_jitter) spreads them.
    RetryAfter(Duration),
}

impl Undecided {
    /// As many decisions as there were asks.
    pub(super) fn decisions(self, count: usize) -> Decisions {
        let (admitted, retry_after) = match self {
            Self::Open => (true, None),
            Self::Closed => (false, None),
            Self::RetryAfter(wait) => (false, Some(wait)),
        };
        let now = SystemClock::default().now();
        Decisions::repeat(Decision::undecided(admitted, now, retry_after), count)
    }
}

/// Counts a failure, or contention, and says something else instead.
struct Fallback<T> {
    counts: Arc<Counts>,
    failed: T,
    contended: T,
}

/// As many undecided answers as there were asks.
#[derive(Clone, Copy, Debug)]
pub struct Repeated {
    answer: Undecided,
    count: usize,
}

impl From<Repeated> for Decisions {
    fn from(repeated: Repeated) -> Self {
        repeated.answer.decisions(repeated.count)
    }
}

impl<T: Copy> Fallback<T> {
    fn or_else<V, E>(&self, result: Result<V, E>) -> Result<V, Infallible>
    where
        V: From<T>,
        E: Into<Error>,
    {
        result.or_else(|error| {
            // Counts that are read for a report order nothing.
            if error.into().is_contended() {
                self.counts.contentions.fetch_add(1, Ordering::Relaxed);
                return Ok(self.contended.into());
            }
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
            #[cfg(feature = "tracing")]
            log_first();
            Ok(self.failed.into())
        })
    }

    fn check<F, V, E>(self, check: Check<F>) -> Check<OnFailureFuture<F, T>>
    where
        F: Future<Output = Result<V, E>>,
        V: From<T>,
        E: Into<Error>,
    {
        match check {
            Check::Ready(result) => Check::Ready(self.or_else(result)),
            Check::Pending(future) => Check::Pending(OnFailureFuture {
                future,
                fallback: self,
            }),
        }
    }
}

#[cfg(feature = "tracing")]
fn log_first() {
    static LOGGED: std::sync::Once = std::sync::Once::new();
    LOGGED.call_once(|| {
        tracing::error!(
            "a rate limit store could not decide; requests are answered as its `fail_open` or \
             `fail_closed` says (logged once, counted in `OnFailure::failures`)"
        );
    });
}

pin_project! {
    /// The future of an [`OnFailure`] store.
    pub struct OnFailureFuture<F, T = Repeated> {
        #[pin]
        future: F,
        fallback: Fallback<T>,
    }
}

impl<F, T> fmt::Debug for OnFailureFuture<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnFailureFuture").finish_non_exhaustive()
    }
}

impl<F, V, E, T> Future for OnFailureFuture<F, T>
where
    F: Future<Output = Result<V, E>>,
    V: From<T>,
    E: Into<Error>,
    T: Copy,
{
    type Output = Result<V, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.future.poll(cx));
        Poll::Ready(this.fallback.or_else(result))
    }
}

impl<S: Backend> Backend for OnFailure<S> {
    type Error = Infallible;
}

impl<Rule, S: Store<Rule, Error: Into<Error>>> Store<Rule> for OnFailure<S> {
    type Answer = OnFailureFuture<S::Answer>;
    type Done = OnFailureFuture<S::Done, ()>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.undecided(asks.len()).check(self.store.acquire(asks))
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.undecided(asks.len()).check(self.store.look(asks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        self.fallback((), ()).check(self.store.settle(settlements))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.fallback((), ()).check(self.store.reset(policy, key))
    }
}
