//! A store behind a trait object.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use super::{
    Ask, Backend, Check, Decisions, Delta, NodeCounts, Settlement, Store, StoreId, SyncFuture,
};
use crate::{algorithm::Algorithm, key::Key, policy::Policy};

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
pub struct BoxStore<Rule, E>(Arc<dyn ErasedStore<Rule, E>>);

impl<Rule, E> BoxStore<Rule, E> {
    pub(super) fn new<S>(store: S) -> Self
    where
        S: Store<Rule, Error = E, Answer: Send + 'static, Done: Send + 'static>
            + Send
            + Sync
            + 'static,
    {
        Self(Arc::new(store))
    }
}

impl<Rule, E> Clone for BoxStore<Rule, E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<Rule, E> fmt::Debug for BoxStore<Rule, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxStore").finish_non_exhaustive()
    }
}

/// [`Store`] with boxed futures, which makes it a trait object.
trait ErasedStore<Rule, E>: Send + Sync {
    fn address(&self) -> Option<&str>;
    fn id(&self) -> Option<StoreId>;
    fn unsettled(&self) -> Option<u64>;
    fn shard(&self, policy: &Policy, key: &Key) -> u32;
    fn refuses_beyond_rules(&self) -> bool;
    fn note_refusal(&self, policy: &Policy, key: &Key) -> bool;
    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<BoxFuture<Result<Decisions, E>>>;
    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<BoxFuture<Result<Decisions, E>>>;
    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<BoxFuture<Result<(), E>>>;
    fn reset(&self, policy: &Policy, key: &Key) -> Check<BoxFuture<Result<(), E>>>;
    fn fits(&self, rule: &Rule) -> Result<(), crate::Error>;
    fn count_node(&self, policy: &Policy, period: u64) -> Option<BoxFuture<Result<NodeCounts, E>>>;
    fn sync(&self, deltas: &[Delta<'_, Rule>]) -> Option<SyncFuture<Rule, E>>
    where
        Rule: Algorithm;
}

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

impl<Rule, S> ErasedStore<Rule, S::Error> for S
where
    S: Store<Rule, Answer: Send + 'static, Done: Send + 'static> + Send + Sync,
{
    fn address(&self) -> Option<&str> {
        Backend::address(self)
    }

    fn id(&self) -> Option<StoreId> {
        Backend::id(self)
    }

    fn unsettled(&self) -> Option<u64> {
        Backend::unsettled(self)
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        Backend::shard(self, policy, key)
    }

    fn refuses_beyond_rules(&self) -> bool {
        Backend::refuses_beyond_rules(self)
    }

    fn note_refusal(&self, policy: &Policy, key: &Key) -> bool {
        Backend::note_refusal(self, policy, key)
    }

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<BoxFuture<Result<Decisions, S::Error>>> {
        boxed(Store::acquire(self, asks))
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<BoxFuture<Result<Decisions, S::Error>>> {
        boxed(Store::look(self, asks))
    }

    fn settle(
        &self,
        settlements: Vec<Settlement<'_, Rule>>,
    ) -> Check<BoxFuture<Result<(), S::Error>>> {
        boxed(Store::settle(self, settlements))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<BoxFuture<Result<(), S::Error>>> {
        boxed(Store::reset(self, policy, key))
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        Store::fits(self, rule)
    }

    fn count_node(
        &self,
        policy: &Policy,
        period: u64,
    ) -> Option<BoxFuture<Result<NodeCounts, S::Error>>> {
        Store::count_node(self, policy, period)
    }

    fn sync(&self, deltas: &[Delta<'_, Rule>]) -> Option<SyncFuture<Rule, S::Error>>
    where
        Rule: Algorithm,
    {
        Store::sync(self, deltas)
    }
}

impl<Rule, E> Backend for BoxStore<Rule, E> {
    type Error = E;

    fn id(&self) -> Option<StoreId> {
        self.0.id()
    }

    fn address(&self) -> Option<&str> {
        self.0.address()
    }

    fn unsettled(&self) -> Option<u64> {
        self.0.unsettled()
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        self.0.shard(policy, key)
    }

    fn refuses_beyond_rules(&self) -> bool {
        self.0.refuses_beyond_rules()
    }

    fn note_refusal(&self, policy: &Policy, key: &Key) -> bool {
        self.0.note_refusal(policy, key)
    }
}

impl<Rule, E> Store<Rule> for BoxStore<Rule, E> {
    type Answer = BoxFuture<Result<Decisions, E>>;
    type Done = BoxFuture<Result<(), E>>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<BoxFuture<Result<Decisions, E>>> {
        self.0.acquire(asks)
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<BoxFuture<Result<Decisions, E>>> {
        self.0.look(asks)
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<BoxFuture<Result<(), E>>> {
        self.0.settle(settlements)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<BoxFuture<Result<(), E>>> {
        self.0.reset(policy, key)
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        self.0.fits(rule)
    }

    fn count_node(&self, policy: &Policy, period: u64) -> Option<BoxFuture<Result<NodeCounts, E>>> {
        self.0.count_node(policy, period)
    }

    fn sync(&self, deltas: &[Delta<'_, Rule>]) -> Option<SyncFuture<Rule, E>>
    where
        Rule: Algorithm,
    {
        self.0.sync(deltas)
    }
}
