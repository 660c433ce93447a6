//! The parts of the two wrappers that are the same.
//!
//! Both share a store, what they know of keys, the number of nodes and their settings between all
//! clones, pass the same methods on to the store, and have it decide blocks.

use std::sync::Arc;

use super::nodes::Nodes;
use crate::{
    decision::Decisions,
    store::{Ask, BoxFuture, Check, Store, StoreError, wrappers::blocks::Unblocked},
    time::{Clock, Timestamp},
};

/// The parts that the clones of a wrapper share.
pub(super) struct Shared<S, K, Config> {
    pub(super) store: S,
    /// All that this node knows of keys.
    pub(super) keys: K,
    pub(super) config: Config,
    pub(super) nodes: Arc<Nodes>,
    pub(super) unblocked: Arc<Unblocked>,
}

/// Settings with a clock.
pub(super) trait Clocked {
    fn now(&self) -> Timestamp;
}

/// A store inside of a wrapper, which tasks call.
pub(super) trait InnerStore<Rule>:
    Store<Rule, Error = StoreError> + Send + Sync + 'static
{
}

impl<Rule, S: Store<Rule, Error = StoreError> + Send + Sync + 'static> InnerStore<Rule> for S {}

/// One whose answers tasks await.
pub(super) trait LateStore<Rule>: InnerStore<Rule, Answer: Send + 'static> {}

impl<Rule, S: InnerStore<Rule, Answer: Send + 'static>> LateStore<Rule> for S {}

/// A clock that tasks read.
pub(super) trait FleetClock: Clock + Send + Sync + 'static {}

impl<C: Clock + Send + Sync + 'static> FleetClock for C {}

impl<S, K, Config: Clocked> Shared<S, K, Config> {
    /// Returns the time by the clock of this node.
    #[inline]
    pub(super) fn now(&self) -> Timestamp {
        self.config.now()
    }

    /// Has the store decide a call with a block; `None` if the call has none. A block is one state
    /// for all nodes: it is in the store when the call that makes it has ended, and no rule that is
    /// leased or synchronised.
    #[inline]
    pub(super) fn acquire_blocks<Rule>(
        self: &Arc<Self>,
        asks: &[Ask<'_, Rule>],
    ) -> Option<Check<BoxFuture<Result<Decisions, StoreError>>>>
    where
        S: LateStore<Rule>,
        K: Send + Sync + 'static,
        Config: Send + Sync + 'static,
    {
        if !asks.iter().any(|ask| ask.policy().is_of_blocks()) {
            return None;
        }
        let this = Arc::clone(self);
        let answer = self.store.acquire(asks);
        Some(self.unblocked.write(asks, answer, move || this.now()))
    }
}

/// Does something with an answer when it has come.
pub(super) fn then<F, T>(
    answer: Check<F>,
    work: impl FnOnce(F::Output) -> T + Send + 'static,
) -> Check<BoxFuture<T>>
where
    F: Future + Send + 'static,
{
    match answer {
        Check::Ready(answer) => Check::Ready(work(answer)),
        Check::Pending(answer) => Check::Pending(Box::pin(async move { work(answer.await) })),
    }
}

/// Implements what is the same for both wrappers of an `Arc` of [`Shared`].
macro_rules! wrapper {
    ($Wrapper:ident, $Rule:ident: $Fleet:ident) => {
        impl<S, $Rule: $Fleet, C> $Wrapper<S, $Rule, C> {
            /// Returns the wrapped store, for example to read its counters.
            pub fn get_ref(&self) -> &S {
                &self.inner.store
            }
        }

        impl_clone!([S, $Rule: $Fleet, C] $Wrapper<S, $Rule, C>, { inner });
        impl_debug!([S, $Rule: $Fleet, C] $Wrapper<S, $Rule, C>);

        impl<S, $Rule, C> FleetStore<$Rule> for $Wrapper<S, $Rule, C>
        where
            S: Store<$Rule, Error = StoreError, Answer: Send + 'static> + Send + Sync + 'static,
            $Rule: $Fleet,
            C: Clock + Send + Sync + 'static,
        {
            delegate!(FleetStore, self => self.inner.store; count_node);
        }
    };
}

pub(super) use wrapper;
