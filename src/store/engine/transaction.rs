//! Decisions of a store of your own.

use std::fmt;

use super::{Entry, States};
use crate::{
    algorithm::Algorithm,
    decision::Cost,
    store::{Ask, Decisions, Settlement, StateKey},
    time::Timestamp,
};

/// Decides calls on states that a store has read, at one instant: all asks of a call spend, or none.
///
/// A [`Store`](crate::store::Store) of your own that can lock its states, or read and write them in a transaction of its own, needs nothing else:
///
/// 1. lock, and read the states under the [keys](Ask::state_key) of the asks or settlements;
/// 2. [insert](Self::insert) them into a transaction, and [`acquire`](Self::acquire), [`look`](Self::look) or
///    [`settle`](Self::settle);
/// 3. write the [changes](Self::into_changes), and unlock.
///
/// `acquire` handles what is easy to get wrong: several asks about one state, what a refusal writes, a rule that differs from
/// [key to key](Algorithm::for_key), and the [mark](Ask::charged) of each charge. If one ask is refused, the answer to each other ask is a look.
///
/// # Examples
///
/// A store in a map. It passes the conformance suite:
///
#[cfg_attr(feature = "test-util", doc = "```")]
#[cfg_attr(not(feature = "test-util"), doc = "```ignore")]
/// use std::{collections::HashMap, convert::Infallible, sync::{Arc, Mutex}};
/// use tollgate::{AnyRule, Policy, algorithm::Algorithm, key::Key, time::{Clock, ManualClock}};
/// use tollgate::store::{Ask, Backend, Check, Decisions, Never, Settlement, StateKey, Store, Transaction};
/// use tollgate::testing::conformance::{Law, Suite};
///
/// struct MapStore<R: Algorithm> {
///     states: Mutex<HashMap<StateKey, R::State>>,
///     clock: ManualClock,
/// }
///
/// impl<R: Algorithm> MapStore<R> {
///     fn transact<T>(&self, keys: Vec<StateKey>, work: impl FnOnce(&mut Transaction<R>) -> T) -> T {
///         let mut states = self.states.lock().unwrap();
///         let mut transaction = Transaction::new(self.clock.now());
///         for key in keys {
///             if let Some(state) = states.get(&key) {
///                 transaction.insert(key, state.clone());
///             }
///         }
///         let result = work(&mut transaction);
///         for change in transaction.into_changes() {
///             match change.state {
///                 Some(state) => states.insert(change.key, state),
///                 None => states.remove(&change.key),
///             };
///         }
///         result
///     }
/// }
///
/// impl<R: Algorithm> Backend for MapStore<R> {
///     type Error = Infallible;
/// }
///
/// impl<R: Algorithm> Store<R> for MapStore<R> {
///     type Answer = Never<Result<Decisions, Infallible>>;
///     type Done = Never<Result<(), Infallible>>;
///
///     fn acquire(&self, asks: &[Ask<'_, R>]) -> Check<Self::Answer> {
///         let keys = asks.iter().map(Ask::state_key).collect();
///         Check::Ready(Ok(self.transact(keys, |transaction| transaction.acquire(asks))))
///     }
///     fn look(&self, asks: &[Ask<'_, R>]) -> Check<Self::Answer> {
///         let keys = asks.iter().map(Ask::state_key).collect();
///         Check::Ready(Ok(self.transact(keys, |transaction| transaction.look(asks))))
///     }
///     fn settle(&self, settlements: Vec<Settlement<'_, R>>) -> Check<Self::Done> {
///         let keys = settlements.iter().map(Settlement::state_key).collect();
///         Check::Ready(Ok(self.transact(keys, |transaction| transaction.settle(settlements))))
///     }
///     fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
///         self.states.lock().unwrap().retain(|state, _| !state.is_of(policy, key));
///         Check::Ready(Ok(()))
///     }
/// }
///
/// # #[tokio::main]
/// # async fn main() {
/// let clock = ManualClock::default();
/// let store = MapStore::<AnyRule> { states: Mutex::default(), clock: clock.clone() };
/// let suite = Suite::new(Arc::new(store)).clock(clock).spawn(tokio::spawn);
/// # let suite = suite.timelines(2);
/// // The suite was given no fault to cause.
/// assert_eq!(suite.run().await.unwrap().left_out(), [Law::Fault]);
/// # }
/// ```
///
/// This store keeps every key for ever. A real one removes a state some time after [`Change::until`].
pub struct Transaction<Rule: Algorithm> {
    now: Timestamp,
    entries: Vec<(StateKey, Entry<Rule::State>)>,
}

/// A state that a [`Transaction`] has changed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Change<State> {
    /// The key of the state.
    pub key: StateKey,
    /// The new state; `None` if nothing is left of it, so that it is to be removed.
    pub state: Option<State>,
    /// The instant from which on the new state has no effect any more. From then on a store may remove it.
    pub until: Timestamp,
}

impl<Rule: Algorithm> Transaction<Rule> {
    /// Creates a transaction without states that decides at the instant `now`, read after the states were locked.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            now,
            entries: Vec::new(),
        }
    }

    /// Adds a state that the store has read. A key that is never inserted has no state; the first of two states of a key counts.
    pub fn insert(&mut self, key: StateKey, state: Rule::State) {
        if self.get(&key).is_none() {
            self.entries.push((key, Entry::new(Some(state))));
        }
    }

    fn get(&self, key: &StateKey) -> Option<&Entry<Rule::State>> {
        let (_, entry) = self.entries.iter().find(|(known, _)| known == key)?;
        Some(entry)
    }

    fn get_mut(&mut self, key: &StateKey) -> &mut Entry<Rule::State> {
        let index = self.entries.iter().position(|(known, _)| known == key);
        let index = index.unwrap_or_else(|| {
            self.entries.push((key.clone(), Entry::new(None)));
            self.entries.len() - 1
        });
        &mut self.entries[index].1
    }

    /// Spends the costs of all asks, or none of them.
    #[must_use = "a refused call must not go on"]
    pub fn acquire(&mut self, asks: &[Ask<'_, Rule>]) -> Decisions {
        let spends: Vec<_> = asks.iter().map(Spend::of).collect();
        let digests = asks.iter().map(|ask| ask.policy().digest());
        self.spend(&spends).decisions.of_policies(digests)
    }

    /// Returns how the keys stand. Changes nothing; the costs are ignored.
    #[must_use]
    pub fn look(&self, asks: &[Ask<'_, Rule>]) -> Decisions {
        let look = |ask: &Ask<'_, Rule>| {
            let Spend { key, rule, .. } = Spend::of(ask);
            let entry = self.get(&key);
            rule.look(entry.and_then(|entry| entry.state.as_ref()), self.now)
        };
        asks.iter().map(look).collect()
    }

    /// Corrects charges to their actual costs.
    pub fn settle<'a>(&mut self, settlements: impl IntoIterator<Item = Settlement<'a, Rule>>)
    where
        Rule: 'a,
    {
        let now = self.now;
        for settlement in settlements {
            let own = settlement.rule_for_key();
            let rule = own.as_ref().unwrap_or(settlement.rule);
            let entry = self.get_mut(&settlement.state_key());
            entry.settle(rule, &settlement.charge, now, settlement.actual);
        }
    }

    /// Returns the states that were changed, to be written by the store.
    #[must_use = "what is not written is not spent"]
    pub fn into_changes(self) -> impl Iterator<Item = Change<Rule::State>> {
        let change = |(
            key,
            Entry {
                state,
                written_until,
            },
        ): (_, Entry<_>)| {
            let until = written_until?;
            Some(Change { key, state, until })
        };
        self.entries.into_iter().filter_map(change)
    }
}

impl<Rule: Algorithm> fmt::Debug for Transaction<Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("now", &self.now)
            .field("states", &self.entries.len())
            .finish_non_exhaustive()
    }
}

/// One ask of a call.
struct Spend<Rule> {
    key: StateKey,
    /// As the key meets it.
    rule: Rule,
    cost: Cost,
}

impl<Rule: Algorithm> Spend<Rule> {
    fn of(ask: &Ask<'_, Rule>) -> Self {
        Self {
            key: ask.state_key(),
            rule: ask.rule_for_key().unwrap_or_else(|| ask.rule().clone()),
            cost: ask.cost(),
        }
    }
}

impl<Rule: Algorithm> States<Spend<Rule>> for Transaction<Rule> {
    type Rule = Rule;

    fn now(&self) -> Timestamp {
        self.now
    }

    fn rule(ask: &Spend<Rule>) -> &Rule {
        &ask.rule
    }

    fn cost(ask: &Spend<Rule>) -> Cost {
        ask.cost
    }

    fn entry(&mut self, ask: &Spend<Rule>) -> &mut Entry<Rule::State> {
        self.get_mut(&ask.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AnyRule, Policy};

    struct Bench {
        policy: Policy,
        now: Timestamp,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                policy: Policy::new("api"),
                now: Timestamp::from_nanos(1_800_000_000_000_000_000),
            }
        }

        /// Asks under these rules for these keys and costs in one call. Returns which asks pass, and the number of changed states.
        fn call(&self, asks: &[(&str, &'static str, u64)]) -> (Vec<bool>, usize) {
            let rules: Vec<AnyRule> = asks
                .iter()
                .map(|(rule, ..)| rule.parse().unwrap())
                .collect();
            let ask = |((_, key, cost), rule): (&(&str, &'static str, u64), _)| {
                Ask::new(&self.policy, rule, (*key).into(), Cost::new(*cost).unwrap())
            };
            let asks: Vec<_> = asks.iter().zip(&rules).map(ask).collect();
            // Fresh keys: nothing is inserted.
            let mut transaction = Transaction::new(self.now);
            let decisions = transaction.acquire(&asks);
            let passes = decisions.as_slice().iter().map(|one| one.is_admitted());
            (passes.collect(), transaction.into_changes().count())
        }
    }

    #[test]
    fn all_asks_spend_or_none() {
        let bucket = "token-bucket 3/1h";
        let bench = Bench::new();
        let (passes, changes) = bench.call(&[(bucket, "a", 3), (bucket, "b", 1)]);
        assert_eq!((passes, changes), (vec![true, true], 2));
        // The answer to the first is a look.
        let (passes, changes) = bench.call(&[(bucket, "a", 3), (bucket, "b", 4)]);
        assert_eq!((passes, changes), (vec![true, false], 0));
    }

    #[test]
    fn asks_about_one_key_share_its_state() {
        let bucket = "token-bucket 3/1h";
        let bench = Bench::new();
        let (passes, changes) = bench.call(&[(bucket, "a", 2), (bucket, "a", 1)]);
        assert_eq!((passes, changes), (vec![true, true], 1));
        let (passes, changes) = bench.call(&[(bucket, "a", 2), (bucket, "a", 2)]);
        assert_eq!((passes, changes), (vec![true, false], 0));
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
}
