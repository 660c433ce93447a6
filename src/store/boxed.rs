//! A store whose type configuration chooses.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use super::{Ask, Backend, Check, Decisions, Settlement, Store};
use crate::{key::Key, policy::Policy};

/// A boxed future that may cross threads.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Any store of this rule and error, by [`StoreExt::boxed`](super::StoreExt::boxed).
///
/// Clones share the store.
pub struct BoxStore<Rule, E>(Arc<dyn Erased<Rule, E>>);

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

type Answer<E> = BoxFuture<Result<Decisions, E>>;
type Done<E> = BoxFuture<Result<(), E>>;

/// [`Store`] with its futures boxed.
trait Erased<Rule, E>: Send + Sync {
    fn address(&self) -> Option<&str>;
    fn unsettled(&self) -> Option<u64>;
    fn shard(&self, policy: &Policy, key: &Key) -> u32;
    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Answer<E>>;
    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Answer<E>>;
    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Done<E>>;
    fn reset(&self, policy: &Policy, key: &Key) -> Check<Done<E>>;
    fn fits(&self, rule: &Rule) -> Result<(), crate::Error>;
}

fn boxed<T, F>(check: Check<F>) -> Check<BoxFuture<T>>
where
    F: Future<Output = T> + Send + 'static,
{
    match check {
        Check::Ready(output) => Check::Ready(output),
        Check::Pending(future) => Check::Pending(Box::pin(future)),
    }
}

impl<Rule, S> Erased<Rule, S::Error> for S
where
    S: Store<Rule, Answer: Send + 'static, Done: Send + 'static> + Send + Sync,
{
    fn address(&self) -> Option<&str> {
        Backend::address(self)
    }

    fn unsettled(&self) -> Option<u64> {
        Backend::unsettled(self)
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        Backend::shard(self, policy, key)
    }

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Answer<S::Error>> {
        boxed(Store::acquire(self, asks))
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Answer<S::Error>> {
        boxed(Store::look(self, asks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Done<S::Error>> {
        boxed(Store::settle(self, settlements))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Done<S::Error>> {
        boxed(Store::reset(self, policy, key))
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        Store::fits(self, rule)
    }
}

impl<Rule, E> Backend for BoxStore<Rule, E> {
    type Error = E;

    fn address(&self) -> Option<&str> {
        self.0.address()
    }

    fn unsettled(&self) -> Option<u64> {
        self.0.unsettled()
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        self.0.shard(policy, key)
    }
}

impl<Rule, E> Store<Rule> for BoxStore<Rule, E> {
    type Answer = Answer<E>;
    type Done = Done<E>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Answer<E>> {
        self.0.acquire(asks)
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Answer<E>> {
        self.0.look(asks)
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Done<E>> {
        self.0.settle(settlements)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Done<E>> {
        self.0.reset(policy, key)
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        self.0.fits(rule)
    }
}
