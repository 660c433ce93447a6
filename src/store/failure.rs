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
};

use pin_project_lite::pin_project;

use super::{Ask, Backend, Check, Decisions, Settlement, Store};
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

/// A store whose failures are answered: requests pass, or are refused, as undecided.
///
/// Made by [`fail_open`](super::StoreExt::fail_open) and [`fail_closed`](super::StoreExt::fail_closed). A failed
/// `settle` or `reset` counts as a failure and is dropped.
#[derive(Clone, Debug)]
pub struct OnFailure<S> {
    store: S,
    admitted: bool,
    failures: Arc<AtomicU64>,
}

impl<S> OnFailure<S> {
    pub(super) fn new(store: S, admitted: bool) -> Self {
        Self {
            store,
            admitted,
            failures: Arc::default(),
        }
    }

    /// How often the store could not do what was asked of it, all clones together.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    fn fallback<T>(&self, otherwise: T) -> Fallback<T> {
        Fallback {
            failures: Arc::clone(&self.failures),
            otherwise: Some(otherwise),
        }
    }

    fn undecided(&self, count: usize) -> Fallback<Undecided> {
        self.fallback(Undecided {
            admitted: self.admitted,
            count,
        })
    }
}

/// Counts a failure and says something else instead.
struct Fallback<T> {
    failures: Arc<AtomicU64>,
    otherwise: Option<T>,
}

/// As many undecided answers as there were asks.
#[derive(Debug)]
pub struct Undecided {
    admitted: bool,
    count: usize,
}

impl From<Undecided> for Decisions {
    fn from(undecided: Undecided) -> Self {
        let now = SystemClock::default().now();
        let decision = Decision::undecided(undecided.admitted, now, None);
        Self::repeat(decision, undecided.count)
    }
}

impl<T> Fallback<T> {
    fn or_else<V, E>(&mut self, result: Result<V, E>) -> Result<V, Infallible>
    where
        V: From<T> + Default,
    {
        result.or_else(|_| {
            // A count that is read for a report orders nothing.
            self.failures.fetch_add(1, Ordering::Relaxed);
            #[cfg(feature = "tracing")]
            log_first();
            Ok(self.otherwise.take().map_or_else(V::default, V::from))
        })
    }

    fn check<F, V, E>(mut self, check: Check<F>) -> Check<OnFailureFuture<F, T>>
    where
        F: Future<Output = Result<V, E>>,
        V: From<T> + Default,
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
    pub struct OnFailureFuture<F, T = Undecided> {
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
    V: From<T> + Default,
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

impl<Rule, S: Store<Rule>> Store<Rule> for OnFailure<S> {
    type Answer = OnFailureFuture<S::Answer>;
    type Done = OnFailureFuture<S::Done, ()>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.undecided(asks.len()).check(self.store.acquire(asks))
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.undecided(asks.len()).check(self.store.look(asks))
    }

    fn settle(&self, settlements: &[Settlement<'_, Rule>]) -> Check<Self::Done> {
        self.fallback(()).check(self.store.settle(settlements))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.fallback(()).check(self.store.reset(policy, key))
    }
}
