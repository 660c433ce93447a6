//! Tests of stores, one's own too.
//!
//! | | |
//! |---|---|
//! | [`conformance`] | a suite that calls a store and tells which law it breaks |
//! | [`Faulty`] | a store that fails when it is told to |
//! | [`ManualClock`](crate::time::ManualClock) | a clock that stands still until it is told otherwise |
//!
//! # A store of one's own
//!
//! What a store has to do is short to write down, and long to check. This one keeps its states in a map and
//! runs any rule; the suite says whether it is right:
//!
//! ```
//! use std::{collections::HashMap, convert::Infallible, sync::{Arc, Mutex}};
//! use tollgate::{AnyRule, Decision, Policy, time::{Clock, ManualClock}, key::Key};
//! use tollgate::algorithm::{Algorithm, StateKind};
//! use tollgate::store::{Ask, Backend, Check, Decisions, Never, Settlement, Store};
//! use tollgate::testing::conformance::{Law, Suite};
//!
//! /// A store's key is the name of the policy and the client's key; under it lies a state of each kind of rule.
//! type Place = (String, Key, StateKind);
//!
//! fn place<A: Algorithm>(policy: &Policy, key: &Key, rule: &A) -> Place {
//!     (policy.name().to_owned(), *key, rule.state_kind())
//! }
//!
//! #[derive(Clone)]
//! struct Book<A: Algorithm> {
//!     states: Arc<Mutex<HashMap<Place, A::State>>>,
//!     clock: ManualClock,
//! }
//!
//! fn keep<S>(states: &mut HashMap<Place, S>, place: Place, state: Option<S>) {
//!     match state {
//!         Some(state) => states.insert(place, state),
//!         None => states.remove(&place),
//!     };
//! }
//!
//! impl<A: Algorithm> Backend for Book<A> {
//!     type Error = Infallible;
//! }
//!
//! impl<A: Algorithm> Store<A> for Book<A> {
//!     type Answer = Never<Result<Decisions, Infallible>>;
//!     type Done = Never<Result<(), Infallible>>;
//!
//!     fn acquire(&self, asks: &[Ask<'_, A>]) -> Check<Self::Answer> {
//!         let (mut states, now) = (self.states.lock().unwrap(), self.clock.now());
//!         let (mut before, mut decisions) = (Vec::new(), Vec::new());
//!         for ask in asks {
//!             // A rule may be another one for each key, as windows that begin at their own time.
//!             let rule = ask.rule_for_key().unwrap_or(ask.rule().clone());
//!             let place = place(ask.policy(), ask.key(), &rule);
//!             let mut state = states.get(&place).cloned();
//!             before.push((place.clone(), rule.clone(), state.clone()));
//!             decisions.push(rule.step(&mut state, now, ask.cost()).decision());
//!             keep(&mut states, place, state);
//!         }
//!         if asks.len() > 1 && !decisions.iter().all(Decision::is_admitted) {
//!             // All or nothing: the others only tell how they stand.
//!             for ((place, rule, state), decision) in before.into_iter().zip(&mut decisions).rev() {
//!                 if decision.is_admitted() {
//!                     *decision = rule.look(state.as_ref(), now);
//!                 }
//!                 keep(&mut states, place, state);
//!             }
//!         }
//!         Check::Ready(Ok(decisions.into_iter().collect()))
//!     }
//!
//!     fn look(&self, asks: &[Ask<'_, A>]) -> Check<Self::Answer> {
//!         let (states, now) = (self.states.lock().unwrap(), self.clock.now());
//!         let look = |ask: &Ask<'_, A>| {
//!             let rule = ask.rule_for_key().unwrap_or(ask.rule().clone());
//!             rule.look(states.get(&place(ask.policy(), ask.key(), &rule)), now)
//!         };
//!         Check::Ready(Ok(asks.iter().map(look).collect()))
//!     }
//!
//!     fn settle(&self, settlements: Vec<Settlement<'_, A>>) -> Check<Self::Done> {
//!         let (mut states, now) = (self.states.lock().unwrap(), self.clock.now());
//!         for it in settlements {
//!             let rule = it.rule().for_key(&|| it.key().digest()).unwrap_or(it.rule().clone());
//!             let place = place(it.policy(), it.key(), &rule);
//!             let mut state = states.remove(&place);
//!             rule.settle(&mut state, it.charge(), now, it.actual());
//!             keep(&mut states, place, state);
//!         }
//!         Check::Ready(Ok(()))
//!     }
//!
//!     fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
//!         // It names no rule: the states of all kinds go.
//!         let is_other = |place: &Place| (&*place.0, place.1) != (policy.name(), *key);
//!         self.states.lock().unwrap().retain(|place, _| is_other(place));
//!         Check::Ready(Ok(()))
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let clock = ManualClock::default();
//! let store: Book<AnyRule> = Book { states: Arc::default(), clock: clock.clone() };
//! let report = Suite::new(store).clock(clock).spawn(tokio::spawn).run().await.unwrap();
//! assert_eq!(report.left_out(), [Law::Fault]);
//! # }
//! ```
//!
//! It would not do in front of a service, since it forgets nobody.
//!
//! # One on a server
//!
//! Where nobody can move the server's clock, the suite waits, for some seconds in all; and it draws names that
//! no other run has, so that the server need not be empty:
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
//! Give it `AnyRule`s, or [rules of its own](conformance::Suite::with_rules) if the store runs only some. On a runtime
//! with several threads, callers race on all of them. Two connections that take turns behind one store are
//! checked as two nodes.
//!
//! # What is wrong
//!
//! A store that is broken is told the law, the rule, what was expected, and the calls that led there. This wrapper
//! rounds what remains, and so tells clients to come who will be refused:
//!
//! ```
//! use std::convert::Infallible;
//! use tollgate::{Policy, TokenBucket, time::ManualClock, key::Key};
//! use tollgate::store::{Ask, Backend, Check, Decisions, Local, LocalBuilder, Never, Settlement, Store};
//! use tollgate::testing::conformance::{Law, Suite};
//!
//! struct Rounding(Local<TokenBucket, ManualClock>);
//!
//! fn rounded(check: Check<Never<Result<Decisions, Infallible>>>) -> Check<Never<Result<Decisions, Infallible>>> {
//!     let Check::Ready(Ok(decisions)) = check else { return check };
//!     let tens = |units: Option<u64>| units.unwrap_or(0).next_multiple_of(10);
//!     let decisions = decisions.as_slice().iter();
//!     Check::Ready(Ok(decisions.map(|decision| decision.with_remaining(tens(decision.remaining()))).collect()))
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
//! limit: what a rule lets pass passes, and nothing more
//!   under TokenBucket(token-bucket 10/1m): the store answers
//!     allowed, 10 of 10 left, more after 6s, reset after 6s, charged 1
//!   where its rule decides, at the instant that the answer tells,
//!     allowed, 9 of 10 left, more after 6s, reset after 6s, charged 1
//!   after
//!     look at alice: allowed, 10 of 10 left
//!     acquire 1 of alice: allowed, 10 of 10 left, more after 6s, reset after 6s, charged 1");
//! # }
//! ```

pub mod conformance;
mod faulty;
mod random;

pub use self::faulty::{Fault, FaultCounts, Faults, Faulty, FaultyFuture};
