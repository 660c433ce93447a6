//! Tools for tests: a conformance suite for stores, a store with faults, two nodes as one store,
//! and a clock.
//!
//! | | |
//! |---|---|
//! | [`conformance`] | a suite that calls a store and reports the laws that it breaks |
//! | [`Faulty`] | a wrapper that injects faults into a store |
//! | [`Alternating`] | two nodes or connections as one store, for the suite |
//! | [`ManualClock`](crate::time::ManualClock) | a clock that a test moves |
//!
//! # A store of your own
//!
//! This store keeps its states in a map and runs any rule. The suite checks it:
//!
//! ```
//! use std::{collections::HashMap, convert::Infallible, sync::Mutex};
//!
//! use tollgate::{
//!     AnyRule, Policy,
//!     algorithm::Algorithm,
//!     key::Key,
//!     store::Backend,
//!     store::driver::{Decisions, StateKey, Transact, Transaction, Transactional},
//!     testing::conformance::{Law, Suite},
//!     time::ManualClock,
//! };
//!
//! struct MapStore<R: Algorithm>(Mutex<HashMap<StateKey, R::State>>);
//!
//! impl<R: Algorithm> Backend for MapStore<R> {
//!     type Error = Infallible;
//! }
//!
//! impl<R: Algorithm> Transact<R> for MapStore<R> {
//!     fn transact(&self, transaction: Transaction<'_, R>) -> Result<Decisions, Infallible> {
//!         let mut states = self.0.lock().unwrap();
//!         let (decisions, changes) = transaction.decide(|key| states.get(key).cloned());
//!         for change in changes {
//!             match change.state {
//!                 Some(state) => states.insert(change.key, state),
//!                 None => states.remove(&change.key),
//!             };
//!         }
//!         Ok(decisions)
//!     }
//!
//!     fn reset(&self, policy: &Policy, key: &Key) -> Result<(), Infallible> {
//!         let mut states = self.0.lock().unwrap();
//!         states.retain(|state, _| !state.is_of(policy, key));
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let clock = ManualClock::default();
//! let map = MapStore::<AnyRule>(Mutex::default());
//! let store = Transactional::with_clock(map, clock.clone());
//! let report = Suite::new(store).clock(clock).spawn(tokio::spawn).run().await.unwrap();
//! // The suite was given no fault to cause.
//! assert_eq!(report.left_out(), [Law::Fault]);
//! # }
//! ```
//!
//! It never removes expired states, so it is not fit for production.
//!
//! # A store on a server
//!
//! A server's clock cannot be moved, so the suite waits, for some seconds in all. It uses names
//! that no other run uses, so the server need not be empty:
//!
//! ```
//! # use tollgate::{AnyRule, store::Local, testing::conformance::Suite};
//! # async fn connect() -> Local<AnyRule> { Local::new() }
//! # #[tokio::main(flavor = "multi_thread", worker_threads = 2)]
//! # async fn main() {
//! let store = connect().await;
//! let suite = Suite::new(store).sleep(tokio::time::sleep).spawn(tokio::spawn);
//! # let suite = suite.timelines(2);
//! println!("{}", suite.run().await.unwrap());
//! # }
//! ```
//!
//! Use `AnyRule`, or [rules of your choice](conformance::Suite::with_rules) if the store runs only
//! some. On a multi-threaded runtime, concurrent callers run on all threads.
//!
//! Run the suite on [`Alternating`], around two connections, too. Calls through one connection may
//! never race in the server, so only two show that it compares what it swaps.
//!
//! # The report of a broken store
//!
//! The report contains the law, the rule, the expected answer, and the calls before it. This
//! wrapper rounds the remaining units up, and so announces units that it then refuses:
//!
//! ```
//! use std::convert::Infallible;
//! use tollgate::{Policy, TokenBucket, time::ManualClock, key::Key};
//! use tollgate::store::{Backend, Local, LocalBuilder, Store};
//! use tollgate::store::driver::{Ask, Check, Decisions, Never, Settlement};
//! use tollgate::testing::conformance::{Law, Suite};
//!
//! struct Rounding(Local<TokenBucket, ManualClock>);
//!
//! fn rounded(
//!     check: Check<Never<Result<Decisions, Infallible>>>,
//! ) -> Check<Never<Result<Decisions, Infallible>>> {
//!     let Check::Ready(Ok(decisions)) = check else {
//!         return check;
//!     };
//!     let tens = |units: Option<u64>| units.unwrap_or(0).next_multiple_of(10);
//!     let decisions = decisions.as_slice().iter();
//!     Check::Ready(Ok(decisions
//!         .map(|decision| decision.with_remaining(tens(decision.remaining())))
//!         .collect()))
//! }
//!
//! impl Backend for Rounding {
//!     type Error = Infallible;
//! }
//!
//! impl Store<TokenBucket> for Rounding {
//!     type Answer = Never<Result<Decisions, Infallible>>;
//!     type Done = Never<Result<(), Infallible>>;
//!
//!     fn acquire(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
//!         rounded(self.0.acquire(asks))
//!     }
//!     fn look(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
//!         rounded(Store::look(&self.0, asks))
//!     }
//!     fn settle(&self, settlements: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> {
//!         self.0.settle(settlements)
//!     }
//!     fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
//!         Store::reset(&self.0, policy, key)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let clock = ManualClock::default();
//! let store = Rounding(LocalBuilder::new().clock(clock.clone()).build());
//! let rules = [TokenBucket::per_minute(10), TokenBucket::per_hour(10)];
//! let suite = Suite::with_rules(store, rules).clock(clock).only(Law::Limit);
//! let broken = suite.run().await.unwrap_err();
//! assert_eq!(broken.to_string(), "\
//! 1 of 1 laws do not hold
//!
//! limit: a rule admits exactly its limit
//!   under TokenBucket(token-bucket 10/1m): the store answers
//!     allowed, 10 of 10 left, more after 6s, reset after 6s, charged 1
//!   but its rule, at the instant of the answer, decides
//!     allowed, 9 of 10 left, more after 6s, reset after 6s, charged 1
//!   after
//!     look at alice: allowed, 10 of 10 left
//!     acquire 1 of alice: allowed, 10 of 10 left, more after 6s, reset after 6s, charged 1");
//! # }
//! ```

mod alternating;
pub mod conformance;
mod faulty;

pub use self::{
    alternating::Alternating,
    faulty::{Fault, FaultCounts, Faults, Faulty},
};
