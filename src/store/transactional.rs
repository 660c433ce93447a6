//! Stores of your own that decide under a lock or in a transaction.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    algorithm::{Algorithm, fits_shared},
    decision::Decision,
    key::Key,
    policy::Policy,
    store::{
        Ask, Backend, Check, Decisions, Never, Settlement, StateKey, Store, StoreId,
        ask::ResolvedAsk,
        engine::{CopiedStates, Entry, States, Unsettled},
    },
    time::{Clock, MonotoneClock, SharedClock, SystemClock, Timestamp},
};

/// Storage that can lock its states, or has transactions, such as a map behind a mutex or an
/// embedded database.
///
/// [`Transactional`] makes a store of it that runs every rule; [`InFlight`](crate::InFlight#stores)
/// needs a lease.
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

/// A store over anything that can [`Transact`]: it answers at once, and runs every rule;
/// [`InFlight`](crate::InFlight#stores) needs a lease.
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
pub struct Transactional<T> {
    inner: Arc<TransactionalInner<T>>,
}

struct TransactionalInner<T> {
    data: T,
    clock: MonotoneClock<SharedClock>,
    unsettled: Unsettled,
}

impl<T> Transactional<T> {
    /// Creates a store that decides by the system's clock.
    pub fn new(data: T) -> Self {
        Self::with_clock(data, SystemClock::default())
    }

    /// Creates a store that decides by another clock.
    pub fn with_clock(data: T, clock: impl Clock + Send + Sync + 'static) -> Self {
        Self {
            inner: Arc::new(TransactionalInner {
                data,
                clock: MonotoneClock::new(Arc::new(clock)),
                unsettled: Unsettled::default(),
            }),
        }
    }

    /// Returns the storage, for example to remove expired states.
    pub fn data(&self) -> &T {
        &self.inner.data
    }
}

impl_clone!(Transactional<T>, { inner });

impl_debug!(Transactional<T>);

impl<T: Backend> Backend for Transactional<T> {
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

impl<Rule, T> Store<Rule> for Transactional<T>
where
    Rule: Algorithm,
    T: Transact<Rule>,
{
    type Answer = Never<Result<Decisions, T::Error>>;
    type Done = Never<Result<(), T::Error>>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        if asks.iter().any(|ask| fits_shared(ask.rule()).is_err()) {
            let unsupported = |_: &Ask<'_, Rule>| Decision::unsupported(self.inner.clock.now());
            return Check::Ready(Ok(asks.iter().map(unsupported).collect()));
        }
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
        let mut transaction = Transaction::settle(settlements, clock);
        transaction.forgotten = Some(&forgotten);
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
        fits_shared(rule)?;
        self.data().fits(rule)
    }
}

/// One call of a store, to be decided at one instant: all its asks spend, or none.
///
/// [`decide`](Self::decide) handles what is easy to get wrong: several asks about one state, what a
/// refusal writes, a rule that differs from [key to key](Algorithm::for_key), and the policy that
/// each decision [records](Ask::charged) for its charge. If one ask is refused, the answer to each
/// other ask is a look.
///
/// A [`Transact`](super::Transact) receives transactions. A [`Store`](crate::store::Store) that is
/// not ready at once creates them itself. If it cannot read a state within `decide`, it reads the
/// states of all [`keys`](Self::keys) before:
///
/// ```
/// use std::collections::HashMap;
/// use tollgate::{Cost, Policy, TokenBucket, time::SystemClock};
/// use tollgate::store::{StoreError, driver::{Ask, Transaction}};
/// # use tollgate::{algorithm::Algorithm, store::driver::{Change, StateKey}};
/// # type State = <TokenBucket as Algorithm>::State;
/// # struct Rows;
/// # impl Rows {
/// #     async fn begin() -> Result<Self, StoreError> { Ok(Self) }
/// #     async fn read(&self, _: &[StateKey]) -> Result<HashMap<StateKey, State>, StoreError> { Ok(HashMap::new()) }
/// #     async fn write(self, _: Vec<Change<State>>) -> Result<(), StoreError> { Ok(()) }
/// # }
///
/// # #[tokio::main] async fn main() -> Result<(), StoreError> {
/// # let (api, rule) = (Policy::new("api"), TokenBucket::per_second(10));
/// # let asks = [Ask::new(&api, &rule, "alice".into(), Cost::ONE)];
/// let clock = SystemClock::default();
/// let transaction = Transaction::acquire(&asks, &clock);
/// // `Rows` are a transaction of a database.
/// let rows = Rows::begin().await?;
/// let mut states = rows.read(&transaction.keys()).await?;
/// let (decisions, changes) = transaction.decide(|key| states.remove(key));
/// rows.write(changes).await?;
/// assert!(decisions.is_admitted());
/// # Ok(()) }
/// ```
#[must_use = "a transaction does nothing until it is decided"]
pub struct Transaction<'a, Rule> {
    call: TransactionCall<'a, Rule>,
    clock: &'a (dyn Clock + Sync),
    /// Counts the settlements that refund nothing.
    forgotten: Option<&'a AtomicU64>,
}

enum TransactionCall<'a, Rule> {
    Acquire(&'a [Ask<'a, Rule>]),
    Look(&'a [Ask<'a, Rule>]),
    Settle(Vec<Settlement<'a, Rule>>),
}

/// A state that a [`Transaction`] has changed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Change<State> {
    /// The key of the state.
    pub key: StateKey,
    /// The new state; `None` if nothing is left of it, so that it is to be removed.
    pub state: Option<State>,
    /// The instant from which on the new state has no effect under the rule of the call. From then
    /// on a store may remove it, but not before an instant that an earlier change has set: that may
    /// be of a longer rule, whose debt the state still is.
    pub until: Timestamp,
}

impl<'a, Rule: Algorithm> Transaction<'a, Rule> {
    /// Creates a transaction that spends the costs of all asks, or none of them.
    pub fn acquire(asks: &'a [Ask<'a, Rule>], clock: &'a (dyn Clock + Sync)) -> Self {
        Self::new(TransactionCall::Acquire(asks), clock)
    }

    /// Creates a transaction that looks at the keys without spending. It has no changes, and the
    /// costs are ignored.
    pub fn look(asks: &'a [Ask<'a, Rule>], clock: &'a (dyn Clock + Sync)) -> Self {
        Self::new(TransactionCall::Look(asks), clock)
    }

    /// Creates a transaction that corrects charges to their actual costs. It has no decisions.
    pub fn settle(settlements: Vec<Settlement<'a, Rule>>, clock: &'a (dyn Clock + Sync)) -> Self {
        Self::new(TransactionCall::Settle(settlements), clock)
    }

    fn new(call: TransactionCall<'a, Rule>, clock: &'a (dyn Clock + Sync)) -> Self {
        Self {
            call,
            clock,
            forgotten: None,
        }
    }

    /// Returns the keys of the states that are needed, each once.
    #[must_use]
    pub fn keys(&self) -> Vec<StateKey> {
        let mut keys: Vec<_> = match &self.call {
            TransactionCall::Acquire(asks) | TransactionCall::Look(asks) => {
                asks.iter().map(Ask::state_key).collect()
            }
            TransactionCall::Settle(settlements) => {
                settlements.iter().map(Settlement::state_key).collect()
            }
        };
        let mut seen = HashSet::new();
        keys.retain(|key| seen.insert(key.clone()));
        keys
    }

    /// Decides at the current instant. Returns a decision for each ask, in order, and the changes
    /// that the store is to write.
    ///
    /// Call it after the states were locked. `read` returns the state of a key, or `None` if there
    /// is none, and is called once for each of the [`keys`](Self::keys).
    #[must_use = "a refused call must not go on, and what is not written is not spent"]
    pub fn decide(
        self,
        read: impl FnMut(&StateKey) -> Option<Rule::State>,
    ) -> (Decisions, Vec<Change<Rule::State>>) {
        let now = self.clock.now();
        self.decide_at(now, read)
    }

    /// Decides as [`decide`](Self::decide) does, at an instant by the storage's own clock.
    #[must_use = "a refused call must not go on, and what is not written is not spent"]
    pub fn decide_at(
        self,
        now: Timestamp,
        read: impl FnMut(&StateKey) -> Option<Rule::State>,
    ) -> (Decisions, Vec<Change<Rule::State>>) {
        let mut states = CallStates {
            now,
            read,
            entries: Vec::new(),
        };
        let decisions = match self.call {
            TransactionCall::Acquire(asks) => states.acquire(asks),
            TransactionCall::Look(asks) => states.look(asks),
            TransactionCall::Settle(settlements) => {
                let count = states.settle(settlements);
                if let Some(forgotten) = self.forgotten {
                    forgotten.fetch_add(count, Relaxed);
                }
                Decisions::default()
            }
        };
        (decisions, states.into_changes())
    }
}

impl<Rule> fmt::Debug for Transaction<'_, Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (call, count) = match &self.call {
            TransactionCall::Acquire(asks) => ("acquire", asks.len()),
            TransactionCall::Look(asks) => ("look", asks.len()),
            TransactionCall::Settle(settlements) => ("settle", settlements.len()),
        };
        f.debug_struct("Transaction")
            .field(call, &count)
            .finish_non_exhaustive()
    }
}

/// The states of a call, each read when it is first needed.
struct CallStates<Rule: Algorithm, F> {
    now: Timestamp,
    read: F,
    entries: Vec<(StateKey, Entry<Rule::State>)>,
}

impl<Rule, F> CallStates<Rule, F>
where
    Rule: Algorithm,
    F: FnMut(&StateKey) -> Option<Rule::State>,
{
    /// Returns the index of the entry of a key.
    fn index(&mut self, key: StateKey) -> usize {
        let known = self.entries.iter().position(|(known, _)| *known == key);
        known.unwrap_or_else(|| {
            let state = (self.read)(&key);
            self.entries
                .push((key, Entry::new(state, Timestamp::default())));
            self.entries.len() - 1
        })
    }

    fn acquire(&mut self, asks: &[Ask<'_, Rule>]) -> Decisions {
        let spends: Vec<_> = asks
            .iter()
            .map(|ask| ResolvedAsk::new(ask, self.index(ask.state_key())))
            .collect();
        let digests = asks.iter().map(|ask| ask.policy().digest());
        self.spend(&spends).decisions.of_policies(digests)
    }

    fn look(&mut self, asks: &[Ask<'_, Rule>]) -> Decisions {
        let look = |ask: &Ask<'_, Rule>| {
            let index = self.index(ask.state_key());
            let (_, entry) = &self.entries[index];
            ask.own_rule().look(entry.state.as_ref(), self.now)
        };
        asks.iter().map(look).collect()
    }

    /// Settles, and returns the number of settlements that refunded nothing.
    fn settle(&mut self, settlements: Vec<Settlement<'_, Rule>>) -> u64 {
        let settle = |settlement: Settlement<'_, Rule>| {
            let own = settlement.rule_for_key();
            let rule = own.as_ref().unwrap_or(settlement.rule);
            let index = self.index(settlement.state_key());
            let (_, entry) = &mut self.entries[index];
            let forgets = entry.settle(rule, &settlement.charge, self.now, settlement.actual);
            u64::from(forgets)
        };
        settlements.into_iter().map(settle).sum()
    }

    fn into_changes(self) -> Vec<Change<Rule::State>> {
        let change = |(key, entry): (_, Entry<_>)| {
            let Entry {
                state,
                until,
                is_written,
            } = entry;
            is_written.then_some(Change { key, state, until })
        };
        self.entries.into_iter().filter_map(change).collect()
    }
}

/// An ask names the index of its entry.
impl<Rule: Algorithm, F> CopiedStates<Rule, usize> for CallStates<Rule, F> {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn entry(&mut self, ask: &ResolvedAsk<Rule, usize>) -> &mut Entry<Rule::State> {
        &mut self.entries[ask.at].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AnyRule, Cost, Policy, time::ManualClock};

    struct Bench {
        policy: Policy,
        clock: ManualClock,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                policy: Policy::new("api"),
                clock: ManualClock::default(),
            }
        }

        /// Asks under these rules for these keys and costs in one call. Returns which asks pass,
        /// and the number of changed states.
        fn call(&self, asks: &[(&str, &'static str, u64)]) -> (Vec<bool>, usize) {
            let rules: Vec<AnyRule> = asks
                .iter()
                .map(|(rule, ..)| rule.parse().unwrap())
                .collect();
            let ask = |((_, key, cost), rule): (&(&str, &'static str, u64), _)| {
                Ask::new(&self.policy, rule, (*key).into(), Cost::new(*cost).unwrap())
            };
            let asks: Vec<_> = asks.iter().zip(&rules).map(ask).collect();
            // Fresh keys: there are no states.
            let transaction = Transaction::acquire(&asks, &self.clock);
            let (decisions, changes) = transaction.decide(|_| None);
            let passes = decisions.as_slice().iter().map(|one| one.is_admitted());
            (passes.collect(), changes.len())
        }
    }

    /// The second window carries the count of the first one over, which was not spent after all.
    #[test]
    fn a_refusal_writes_no_charge_of_another_ask() {
        let bench = Bench::new();
        let (passes, changes) = bench.call(&[
            ("fixed-window 10/1h", "a", 1),
            ("fixed-window 1/1d", "a", 1),
        ]);
        assert_eq!((passes, changes), (vec![true, false], 0));
    }

    #[test]
    fn the_first_sight_of_a_refused_key_is_written() {
        let bench = Bench::new();
        let (passes, changes) = bench.call(&[
            ("token-bucket 3/1h initial=1", "a", 2),
            ("token-bucket 3/1h", "b", 1),
        ]);
        assert_eq!((passes, changes), (vec![false, true], 1));
    }

    #[test]
    fn each_state_is_read_once_and_is_one_of_the_keys() {
        let (bucket, window): (AnyRule, AnyRule) = (
            "token-bucket 3/1h".parse().unwrap(),
            "fixed-window 3/1h".parse().unwrap(),
        );
        let Bench { policy, clock } = Bench::new();
        let ask = |rule, key: &'static str| Ask::new(&policy, rule, key.into(), Cost::ONE);
        let asks = [
            ask(&bucket, "a"),
            ask(&window, "a"),
            ask(&bucket, "b"),
            ask(&bucket, "a"),
        ];
        let expected: Vec<_> = asks[..3].iter().map(Ask::state_key).collect();
        for create in [Transaction::acquire, Transaction::look] {
            assert_eq!(create(&asks, &clock).keys(), expected);
            let mut read = Vec::new();
            let (decisions, _) = create(&asks, &clock).decide(|key| {
                read.push(key.clone());
                None
            });
            assert_eq!(read, expected);
            assert_eq!(decisions.as_slice().len(), asks.len());
        }
    }

    #[test]
    fn a_settlement_has_a_change_and_no_decision() {
        let rule: AnyRule = "token-bucket 3/1h".parse().unwrap();
        let Bench { policy, clock } = Bench::new();
        let asks = [Ask::new(&policy, &rule, "a".into(), Cost::ONE)];
        let (decisions, mut changes) = Transaction::acquire(&asks, &clock).decide(|_| None);
        let charge = { decisions.as_slice()[0] }.take_charge().unwrap();
        let change = changes.pop().unwrap();
        let settlement = Settlement::new(&policy, &rule, "a".into(), charge, 3).unwrap();
        let transaction = Transaction::settle(vec![settlement], &clock);
        assert_eq!(transaction.keys(), [change.key]);
        let (decisions, changes) = transaction.decide(|_| change.state.clone());
        assert_eq!(decisions.as_slice().len(), 0);
        let [settled] = &*changes else {
            panic!("{changes:?}")
        };
        assert!(settled.until > change.until);
        let (looks, changes) = Transaction::look(&asks, &clock).decide(|_| settled.state.clone());
        assert_eq!(looks.as_slice()[0].remaining(), Some(0));
        assert!(changes.is_empty());
    }

    #[test]
    fn a_transaction_is_decided_by_the_time_of_the_storage_if_it_has_one() {
        let rule: AnyRule = "token-bucket 3/1h".parse().unwrap();
        let Bench { policy, clock } = Bench::new();
        let asks = [Ask::new(&policy, &rule, "a".into(), Cost::ONE)];
        let later = clock
            .now()
            .saturating_add(std::time::Duration::from_secs(7));
        let transaction = Transaction::acquire(&asks, &clock);
        let (decisions, _) = transaction.decide_at(later, |_| None);
        assert_eq!(decisions.as_slice()[0].at(), later);
    }
}
