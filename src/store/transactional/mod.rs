//! The store.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64},
};

use super::{Transact, Transaction};
use crate::{
    algorithm::Algorithm,
    key::Key,
    policy::Policy,
    store::{
        Ask, Backend, Check, Decisions, Never, Settlement, Store, StoreId,
        engine::{MonotoneClock, Unsettled},
    },
    time::{Clock, SystemClock},
};

/// A store over anything that can [`Transact`]: it answers at once, and runs every rule.
///
/// Clones share the storage. The page of [`Transact`] has a complete example.
///
/// ```
/// use tollgate::{TokenBucket, prelude::*, store::{Backend, Transact, Transactional}};
///
/// fn limited(database: impl Transact<TokenBucket, Error: Into<tollgate::store::Error>>) {
///     let store = Transactional::new(database).fail_open();
///     let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(PeerIp::new()).store(store);
/// #   let _ = layer;
/// }
/// ```
///
/// # Clock
///
/// Decisions use the clock of this process, unless the storage [has its own](Transaction::decide_at). If the clock steps back, the
/// store's time stands still until it has caught up.
pub struct Transactional<T, K = SystemClock> {
    inner: Arc<Inner<T, K>>,
}

struct Inner<T, K> {
    data: T,
    clock: MonotoneClock<K>,
    unsettled: Unsettled,
}

impl<T> Transactional<T> {
    /// Creates a store that decides by the system's clock.
    pub fn new(data: T) -> Self {
        Self::with_clock(data, SystemClock::default())
    }
}

impl<T, K: Clock> Transactional<T, K> {
    /// Creates a store that decides by another clock.
    pub fn with_clock(data: T, clock: K) -> Self {
        Self {
            inner: Arc::new(Inner {
                data,
                clock: MonotoneClock::new(clock),
                unsettled: Unsettled::default(),
            }),
        }
    }
}

impl<T, K> Transactional<T, K> {
    /// Returns the storage, for example to remove expired states.
    pub fn data(&self) -> &T {
        &self.inner.data
    }
}

impl<T, K> Clone for Transactional<T, K> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<T, K> fmt::Debug for Transactional<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transactional").finish_non_exhaustive()
    }
}

impl<T: Backend, K> Backend for Transactional<T, K> {
    type Error = T::Error;

    fn id(&self) -> Option<StoreId> {
        Some(StoreId::of(&self.inner))
    }

    fn address(&self) -> Option<&str> {
        self.data().address()
    }

    fn unsettled(&self) -> Option<u64> {
        let of_storage = self.data().unsettled().unwrap_or(0);
        Some(of_storage + self.inner.unsettled.count())
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        self.data().shard(policy, key)
    }
}

impl<Rule, T, K> Store<Rule> for Transactional<T, K>
where
    Rule: Algorithm,
    T: Transact<Rule>,
    K: Clock + Sync,
{
    type Answer = Never<Result<Decisions, T::Error>>;
    type Done = Never<Result<(), T::Error>>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let transaction = Transaction::acquire(asks, &self.inner.clock);
        Check::Ready(self.data().transact(transaction))
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let transaction = Transaction::look(asks, &self.inner.clock);
        Check::Ready(self.data().transact(transaction))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let Inner {
            data,
            clock,
            unsettled,
        } = &*self.inner;
        let settling = unsettled.settling(settlements.len());
        let forgotten = AtomicU64::new(0);
        let transaction = Transaction::settle(settlements, clock).counting(&forgotten);
        let settled = data.transact(transaction).map(drop);
        if settled.is_ok() {
            unsettled.add(forgotten.into_inner());
        }
        // A storage that counts has counted those that failed.
        if settled.is_ok() || data.unsettled().is_some() {
            settling.all_made();
        }
        Check::Ready(settled)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        Check::Ready(self.data().reset(policy, key))
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        self.data().fits(rule)
    }
}
