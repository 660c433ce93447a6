//! The trait that the author of a store implements.

use super::Transaction;
use crate::{algorithm::Algorithm, decision::Decisions, key::Key, policy::Policy, store::Backend};

/// Storage that can lock its states, or has transactions, such as a map behind a mutex or an embedded database.
///
/// [`Transactional`](super::Transactional) makes a store of it that runs every rule.
///
/// The calls block their thread, so they should take no longer than a lock is held, or than an embedded database needs. A store that
/// waits for a server implements [`Store`](crate::store::Store) and decides by a [`Transaction`] too, or uses one of the [other
/// traits](crate::store).
///
/// # Examples
///
/// A store in a map. It passes the [conformance suite](crate::testing::conformance):
///
#[cfg_attr(feature = "test-util", doc = "```")]
#[cfg_attr(not(feature = "test-util"), doc = "```ignore")]
/// use std::{collections::HashMap, convert::Infallible, sync::Mutex};
///
/// use tollgate::{
///     Policy,
///     algorithm::Algorithm,
///     key::Key,
///     store::{Backend, Decisions, StateKey, Transact, Transaction},
/// };
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
/// use tollgate::{AnyRule, RateLimitLayer, TokenBucket, store::Transactional, time::ManualClock};
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
/// This map keeps every key for ever. A real store removes a state some time after [`Change::until`](super::Change::until).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot decide calls under the rule `{Rule}` in a transaction",
    note = "implement `Transact<{Rule}>` for it: two functions, of which the page of `tollgate::store::Transact` has an example"
)]
pub trait Transact<Rule: Algorithm>: Backend {
    /// Runs a transaction: reads its states, [decides](Transaction::decide), and writes the changes.
    ///
    /// No other call may read or write these states in between. Returns the decisions after the changes were written.
    ///
    /// # Errors
    ///
    /// Fails if the states cannot be read or written. None of the changes should be left behind then.
    fn transact(&self, transaction: Transaction<'_, Rule>) -> Result<Decisions, Self::Error>;

    /// Removes all states of a policy and key, whatever their kind: those whose key [is of them](crate::store::StateKey::is_of).
    ///
    /// # Errors
    ///
    /// Fails if they cannot be removed.
    fn reset(&self, policy: &Policy, key: &Key) -> Result<(), Self::Error>;

    /// Checks that this storage can keep the states of a rule, as [`Store::fits`](crate::store::Store::fits) does. The default is that it can.
    ///
    /// # Errors
    ///
    /// Fails with the reason why it cannot, and what to choose instead.
    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        let _ = rule;
        Ok(())
    }
}
