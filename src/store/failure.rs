//! What happens when a store cannot tell.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;

use super::{
    Ask, Backend, Check, Decisions, Error, Settlement, Store,
    failures::{Failures, Noted, Policies, asked, settled},
    unsettled::{Settling, Unsettled},
};
use crate::{
    decision::Decision,
    key::Key,
    policy::Policy,
    time::{Clock, SystemClock},
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
/// `settle` or `reset` is counted and dropped. Failed settlements are also [counted by themselves](Backend::unsettled).
///
/// | the store | the request | counted in |
/// |---|---|---|
/// | failed | passes, or is turned away with 503 | [`failures`](Self::failures) |
/// | lost every race for a key | the same, or as [told otherwise](Self::when_contended) | [`contentions`](Self::contentions) |
/// | [does not support](Error::unsupported) the call | is refused with 500 (gRPC: `INTERNAL`), also by `fail_open` | [`unsupported`](Self::unsupported), and by the layer in [`misconfigured`](crate::RateLimitLayer::misconfigured) |
///
/// The last is a choice that nobody has: a client whose requests the store cannot decide would have no limit.
///
/// # Log
///
/// With the feature `tracing`, a failure is an event of level `ERROR` with the fields `policy`, `cause`, `address` (of the
/// server, where its [store knows it](super::Backend::address)), `failures` (all so far) and `unlogged` (how many like it were not
/// logged since the last such event). The first of each policy and cause is logged at once, and then one a minute at most; 32 of
/// them in a minute for each store. Contention is counted and not logged. What the store does not support is logged once for each
/// policy and cause, with the fields `policy`, `cause` and `address`.
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
    failures: Arc<Failures>,
    unsettled: Unsettled,
}

impl<S> OnFailure<S> {
    /// `consequence` tells an operator what happens to requests while the store fails.
    pub(super) fn new(store: S, failed: Undecided, consequence: &'static str) -> Self
    where
        S: Backend,
    {
        let failures = Arc::new(Failures::new(store.address(), consequence));
        Self {
            store,
            failed,
            contended: failed,
            failures,
            unsettled: Unsettled::default(),
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

    /// How often the store failed, but for [contention](Self::contentions) and what it does not [support](Self::unsupported);
    /// all clones together.
    pub fn failures(&self) -> u64 {
        self.failures.failures()
    }

    /// How often every attempt of the store lost its race; all clones together.
    pub fn contentions(&self) -> u64 {
        self.failures.contentions()
    }

    /// How often the store did not [support](Error::unsupported) what was asked of it; all clones together.
    ///
    /// Not 0: some requests have no limit that this store can keep, and are refused.
    pub fn unsupported(&self) -> u64 {
        self.failures.unsupported()
    }

    /// The store itself; whoever asks it [notes](Self::note) its failures.
    pub(super) fn store(&self) -> &S {
        &self.store
    }

    /// Notes why a call with `count` asks was not answered; tells what is answered instead, unless the store failed.
    pub(super) fn note<'a>(
        &self,
        error: impl Into<Error>,
        policies: impl IntoIterator<Item = &'a Policy>,
        count: usize,
    ) -> Option<Decisions> {
        match self.failures.note(&error.into(), policies) {
            Noted::Failed => None,
            Noted::Contended => Some(self.contended.decisions(count)),
            Noted::Unsupported => Some(unsupported(count)),
        }
    }

    /// The answers in place of `count` decisions.
    fn instead(&self, count: usize) -> [Repeated; 3] {
        let chosen = [Some(self.failed), Some(self.contended), None];
        chosen.map(|answer| Repeated { answer, count })
    }

    /// Answers by the first of `answers` where the call failed, by the second one where it lost its races, and by the third one
    /// where the store does not support it.
    fn answer<F, V, E, T>(
        &self,
        check: Check<F>,
        answers: [T; 3],
        settlements: usize,
        policies: impl FnOnce() -> Policies,
    ) -> Check<OnFailureFuture<F, T>>
    where
        F: Future<Output = Result<V, E>>,
        V: From<T>,
        E: Into<Error>,
        T: Copy,
    {
        let fallback = || Fallback {
            failures: Arc::clone(&self.failures),
            policies: policies(),
            answers,
            settling: (settlements > 0).then(|| self.unsettled.settling(settlements)),
        };
        match check {
            Check::Ready(Ok(value)) => Check::Ready(Ok(value)),
            Check::Ready(Err(error)) => Check::Ready(Ok(fallback().instead_of(error))),
            Check::Pending(future) => Check::Pending(OnFailureFuture {
                future,
                fallback: fallback(),
            }),
        }
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

/// As many decisions as there were asks of a call that the store does not support.
pub(super) fn unsupported(count: usize) -> Decisions {
    let now = SystemClock::default().now();
    Decisions::repeat(Decision::unsupported(now), count)
}

/// Notes a failure, or contention, and says something else instead.
struct Fallback<T> {
    failures: Arc<Failures>,
    policies: Policies,
    answers: [T; 3],
    /// The settlements of a `settle`, which are counted unless it succeeds.
    settling: Option<Settling>,
}

/// As many undecided answers as there were asks.
#[derive(Clone, Copy, Debug)]
pub struct Repeated {
    /// `None` where the store does not support the call.
    answer: Option<Undecided>,
    count: usize,
}

impl From<Repeated> for Decisions {
    fn from(repeated: Repeated) -> Self {
        let Repeated { answer, count } = repeated;
        answer.map_or_else(|| unsupported(count), |answer| answer.decisions(count))
    }
}

impl<T: Copy> Fallback<T> {
    fn instead_of<V: From<T>>(&self, error: impl Into<Error>) -> V {
        let [failed, contended, unsupported] = self.answers;
        match self.failures.note(&error.into(), &self.policies) {
            Noted::Failed => failed.into(),
            Noted::Contended => contended.into(),
            Noted::Unsupported => unsupported.into(),
        }
    }
}

pin_project! {
    /// The future of an [`OnFailure`] store.
    #[must_use = "futures do nothing unless polled"]
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
        let settling = this.fallback.settling.take();
        if result.is_ok() {
            settling.into_iter().for_each(Settling::all_made);
        }
        Poll::Ready(result.or_else(|error| Ok(this.fallback.instead_of(error))))
    }
}

impl<S: Backend> Backend for OnFailure<S> {
    type Error = Infallible;

    fn address(&self) -> Option<&str> {
        self.store.address()
    }

    fn unsettled(&self) -> Option<u64> {
        let own = || self.unsettled.count();
        Some(self.store.unsettled().unwrap_or_else(own))
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        self.store.shard(policy, key)
    }
}

impl<Rule, S: Store<Rule, Error: Into<Error>>> Store<Rule> for OnFailure<S> {
    type Answer = OnFailureFuture<S::Answer>;
    type Done = OnFailureFuture<S::Done, ()>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let answers = self.instead(asks.len());
        self.answer(self.store.acquire(asks), answers, 0, || asked(asks))
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let answers = self.instead(asks.len());
        self.answer(self.store.look(asks), answers, 0, || asked(asks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let (count, policies) = (settlements.len(), settled(&settlements));
        self.answer(self.store.settle(settlements), [(); 3], count, || policies)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let policies = || Policies::from_elem(policy.clone(), 1);
        self.answer(self.store.reset(policy, key), [(); 3], 0, policies)
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        self.store.fits(rule)
    }
}
