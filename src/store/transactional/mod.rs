//! Stores of your own that decide under a lock or in a transaction.

mod transaction;

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64},
};

pub use self::transaction::{Change, Transaction};
use crate::{
    algorithm::Algorithm,
    key::Key,
    policy::Policy,
    store::{Ask, Backend, Check, Decisions, Never, Settlement, Store, StoreId, engine::Unsettled},
    time::{Clock, MonotoneClock, SystemClock},
};

/// Storage that can lock its states, or has transactions, such as a map behind a mutex or an
/// embedded database.
///
/// [`Transactional`] makes a store of it that runs every rule.
///
/// The calls block their thread, so they should take no longer than a lock is held, or than an
/// embedded database needs. A store that waits for a server implements [`Store`] and decides by a
/// [`Transaction`] too, or uses one of the [other traits](crate::store).
///
/// # Examples
///
/// A store in a map. It passes the [conformance suite](crate::testing::conformance):
///
#[cfg_attr(feature = "test-util", doc = "```")]
#[cfg_attr(not(feature = "test-util"), doc = "```ignore")]
/// use std::{collections::HashMap, convert::Infallible, sync::Mutex};
///
/// use tollgate::{Policy, algorithm::Algorithm, key::Key};
/// use tollgate::store::Backend;
/// use tollgate::store::driver::{Decisions, StateKey, Transact, Transaction};
///
/// struct MapStore<R: Algorithm>(Mutex<HashMap<StateKey, R::State>>);
///
/// impl<R: Algorithm> Backend for MapStore<R> {
///     type Error = Infallible;
/// }
///
/// impl<R: Algorithm> Transact<R> for MapStore<R> {
///     fn transact(&self, transaction: Transaction<'_, R>) -> Result<Decisions, Infallible> {
///         let mut states = self.0.lock().unwrap();
///         let (decisions, changes) = transaction.decide(|key| states.get(key).cloned());
///         for change in changes {
///             match change.state {
///                 Some(state) => states.insert(change.key, state),
///                 None => states.remove(&change.key),
///             };
///         }
///         Ok(decisions)
///     }
///
///     fn reset(&self, policy: &Policy, key: &Key) -> Result<(), Infallible> {
///         let mut states = self.0.lock().unwrap();
///         states.retain(|state, _| !state.is_of(policy, key));
///         Ok(())
///     }
/// }
///
/// use tollgate::{AnyRule, RateLimitLayer, TokenBucket, time::ManualClock};
/// use tollgate::store::driver::Transactional;
/// use tollgate::testing::conformance::{Law, Suite};
///
/// # #[tokio::main] async fn main() {
/// // The store of a layer.
/// let store = Transactional::new(MapStore(Mutex::default()));
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).store(store);
/// # let _ = layer.key(|_: &()| tollgate::key::Key::from(0_u64));
///
/// // A test of it.
/// let clock = ManualClock::default();
/// let map = MapStore::<AnyRule>(Mutex::default());
/// let store = Transactional::with_clock(map, clock.clone());
/// let suite = Suite::new(store).clock(clock).spawn(tokio::spawn);
/// # let suite = suite.timelines(2);
/// // The suite was given no fault to cause.
/// assert_eq!(suite.run().await.unwrap().left_out(), [Law::Fault]);
/// # }
/// ```
///
/// This map keeps every key for ever. A real store removes a state some time after
/// [`Change::until`](Change::until).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot decide calls under the rule `{Rule}` in a transaction",
    note = "implement `Transact<{Rule}>` for it: two functions, of which the page of `tollgate::store::driver::Transact` has an example"
)]
pub trait Transact<Rule: Algorithm>: Backend {
    /// Runs a transaction: reads its states, [decides](Transaction::decide), and writes the
    /// changes.
    ///
    /// No other call may read or write these states in between. Returns the decisions after the
    /// changes were written.
    ///
    /// # Errors
    ///
    /// Fails if the states cannot be read or written. None of the changes should be left behind
    /// then.
    fn transact(&self, transaction: Transaction<'_, Rule>) -> Result<Decisions, Self::Error>;

    /// Removes all states of a policy and key, whatever their kind: those whose key [is of
    /// them](crate::store::driver::StateKey::is_of).
    ///
    /// # Errors
    ///
    /// Fails if they cannot be removed.
    fn reset(&self, policy: &Policy, key: &Key) -> Result<(), Self::Error>;

    /// Checks that this storage can keep the states of a rule, as [`Store::fits`] does. The default
    /// is that it can.
    ///
    /// # Errors
    ///
    /// Fails with the reason why it cannot, and what to choose instead.
    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        let _ = rule;
        Ok(())
    }
}

/// A store over anything that can [`Transact`]: it answers at once, and runs every rule.
///
/// Clones share the storage. The page of [`Transact`] has a complete example.
///
/// ```
/// use tollgate::{TokenBucket, prelude::*};
/// use tollgate::store::{Backend, StoreError};
/// use tollgate::store::driver::{Transact, Transactional};
///
/// fn limited<D>(database: D)
/// where
///     D: Transact<TokenBucket, Error: Into<StoreError>> + Send + Sync + 'static,
/// {
///     let store = Transactional::new(database).fail_open();
///     let layer = RateLimitLayer::new(TokenBucket::per_second(10))
///         .key(PeerIp::new())
///         .store(store);
/// #   let _ = layer;
/// }
/// ```
///
/// # Clock
///
/// Decisions use the clock of this process, unless the storage [has its
/// own](Transaction::decide_at). If the clock steps back, the store's time stands still until it
/// has caught up.
pub struct Transactional<T, K = SystemClock> {
    inner: Arc<TransactionalInner<T, K>>,
}

struct TransactionalInner<T, K> {
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
            inner: Arc::new(TransactionalInner {
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
        let TransactionalInner {
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
