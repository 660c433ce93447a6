//! A store behind a trait object.

use std::{future::Future, pin::Pin, sync::Arc};

use super::{Ask, Backend, Check, Decisions, Settlement, Store, delegate};
use crate::{key::Key, policy::Policy};

/// A boxed future that is `Send`.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A store of any type, behind a trait object, for a program whose configuration chooses the store.
///
/// Created by [`StoreExt::boxed`](super::StoreExt::boxed). Clones share the store. A decision that
/// is not ready at once costs one allocation.
///
/// ```
/// use tollgate::{TokenBucket, prelude::*, store::{BoxStore, StoreError}};
///
/// fn store(
///     redis: Option<BoxStore<TokenBucket, StoreError>>,
/// ) -> BoxStore<TokenBucket, std::convert::Infallible> {
///     match redis {
///         Some(redis) => redis.fail_open().boxed(),
///         None => Local::new().boxed(),
///     }
/// }
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).store(store(None));
/// # let _ = layer;
/// ```
#[doc(alias = "dyn")]
pub struct BoxStore<Rule, E>(Arc<ErasedStore<Rule, E>>);

type ErasedStore<Rule, E> = dyn Store<
        Rule,
        Error = E,
        Answer = BoxFuture<Result<Decisions, E>>,
        Done = BoxFuture<Result<(), E>>,
    > + Send
    + Sync;

impl<Rule, E> BoxStore<Rule, E> {
    pub(super) fn new<S>(store: S) -> Self
    where
        S: Store<Rule, Error = E, Answer: Send + 'static> + Send + Sync + 'static,
    {
        Self(Arc::new(BoxFutures(store)))
    }
}

impl_clone!(BoxStore<Rule, E>, { 0 });

impl_debug!(BoxStore<Rule, E>);

/// Boxes the future of a check.
pub(crate) fn boxed<T, F>(check: Check<F>) -> Check<BoxFuture<T>>
where
    F: Future<Output = T> + Send + 'static,
{
    match check {
        Check::Ready(output) => Check::Ready(output),
        Check::Pending(future) => Check::Pending(Box::pin(future)),
    }
}

/// A store with boxed futures, which makes it a trait object.
struct BoxFutures<S>(S);

impl<S: Backend> Backend for BoxFutures<S> {
    type Error = S::Error;

    delegate!(Backend, self => self.0);
}

impl<Rule, S> Store<Rule> for BoxFutures<S>
where
    S: Store<Rule, Answer: Send + 'static>,
{
    type Answer = BoxFuture<Result<Decisions, S::Error>>;
    type Done = BoxFuture<Result<(), S::Error>>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        boxed(self.0.acquire(asks))
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        boxed(self.0.look(asks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        boxed(self.0.settle(settlements))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        boxed(self.0.reset(policy, key))
    }

    delegate!(Store<Rule>, self => self.0; renew, fits, fleet);
}

impl<Rule, E: Send + 'static> Backend for BoxStore<Rule, E> {
    type Error = E;

    delegate!(Backend, self => *self.0);
}

impl<Rule, E: Send + 'static> Store<Rule> for BoxStore<Rule, E> {
    type Answer = BoxFuture<Result<Decisions, E>>;
    type Done = BoxFuture<Result<(), E>>;

    delegate!(Store<Rule>, self => *self.0);
}
