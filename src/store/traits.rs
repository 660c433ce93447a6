//! The traits of stores: [`Store`] decides under a type of rule, [`Backend`] is independent of the
//! rule, and [`FleetStore`] has what only fleets need.
//!
//! The rule travels with each call, and a store remembers only states. So a rule can be fixed,
//! chosen per request, or replaced at run time, and no store needs to know.
//!
//! `Backend` holds a store's error, `Store<Rule>` the rest. Wrappers such as `fail_open` are called
//! before the rule is known; with the error on `Store<Rule>`, the compiler would ask for the rule
//! at each call. It also lets `.layer(…)` reject a store that can fail: the message of `NeverFails`
//! says what to write.
//!
//! A rule is checked against its store when the layer is given either (`Store::fits`), because both
//! types are known there and the program has not started. A rule made for one request is checked by
//! its call. Likewise a rule declares whether it may delay (`Algorithm::may_delay`), so that a
//! limit is rejected when it is built if nothing could hold its requests.

use std::{
    any::Any,
    future::{Future, ready},
    sync::Arc,
};

use super::{
    Ask, BoxFuture, Check, Decisions, Delta, Lines, NodeCounts, Pulled, Settlement, StoreError,
    delegate,
};
use crate::{algorithm::Algorithm, key::Key, policy::Policy};

/// Decides whether keys may spend now, and keeps their states.
///
/// The rule comes with every call, and the store keeps only states. A state's key is the policy's
/// name, the client's key, and the [kind](crate::algorithm::Algorithm::state_kind) of the state, so
/// two layers on one store share no state unless their policies have the same name.
///
/// # A store of your own
///
/// Few stores implement this trait themselves. Storage that can lock its states, or has
/// transactions, implements [`Transact`](super::Transact), whose page has a whole store in a map.
/// `CompareAndSwap`, `Increment` and `Evaluate` are for servers. A store that fits none of them
/// decides by a [`Transaction`](super::Transaction).
///
/// A store that refuses every call:
///
/// ```
/// use std::convert::Infallible;
/// use tollgate::{Decision, Policy, Timestamp, Verdict, key::Key};
/// use tollgate::store::{Backend, Store, driver::{Ask, Check, Decisions, Never, Settlement}};
///
/// struct Closed;
///
/// impl Backend for Closed {
///     type Error = Infallible;
/// }
///
/// impl<Rule> Store<Rule> for Closed {
///     type Answer = Never<Result<Decisions, Infallible>>;
///     type Done = Never<Result<(), Infallible>>;
///
///     fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
///         self.look(asks)
///     }
///     fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
///         let refuse = |_: &_| Decision::new(Verdict::Refuse, Timestamp::default(), 0);
///         Check::Ready(Ok(asks.iter().map(refuse).collect()))
///     }
///     fn settle(&self, _: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
///         Check::Ready(Ok(()))
///     }
///     fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> {
///         Check::Ready(Ok(()))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the store `{Self}` cannot run the rule `{Rule}`",
    note = "`Local<Rule>` runs every rule that implements `Algorithm`; a layer's rule and its store \
            must name the same rule type",
    note = "inside of `.with_blocks()` a store runs `Blockable<Rule>`: leave out the rule type of the store \
            (`Local::new().with_blocks()`), or write `Local::<Blockable<Rule>>::new()`"
)]
pub trait Store<Rule>: Backend {
    /// The future of an answer; [`Never`](super::Never) for a store that answers at once.
    type Answer: Future<Output = Result<Decisions, Self::Error>>;
    /// The future of `settle` and `reset`.
    // `Send`, because a call that is being dropped leaves settlements to be made in the background.
    type Done: Future<Output = Result<(), Self::Error>> + Send + 'static;

    /// Spends the costs of all asks, or none of them.
    ///
    /// Returns one decision for each ask, in order. If one of them refuses, the others spend
    /// nothing, and their decisions are looks. A store that cannot do that atomically settles the
    /// earlier ones back, and documents it.
    ///
    /// # Cancellation
    ///
    /// A [`Check::Ready`] answer is spent already. A pending one that is dropped is spent once at
    /// most.
    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer>;

    /// Returns the decisions without spending anything. The costs are ignored.
    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer>;

    /// Corrects earlier charges to their actual costs.
    ///
    /// # Cancellation
    ///
    /// A settlement should be made even if its future is dropped. A [layer](crate::RateLimitLayer)
    /// drops the future when it refunds the charge of a cancelled request. A store should
    /// [count](Backend::unsettled) the settlements that it loses.
    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done>;

    /// Renews what a call holds: settles its charge to its own units at a [later
    /// departure](crate::algorithm::Algorithm::renewal).
    ///
    /// Its result is that of the store also behind a wrapper that never fails, so wrappers forward
    /// it. By default, it is a [settlement](Self::settle), with the [result](Renewed::of) of that.
    fn renew(&self, renewal: Settlement<'_, Rule>) -> BoxFuture<Renewed> {
        match self.settle(vec![renewal]) {
            Check::Ready(done) => Box::pin(ready(Renewed::of(&done))),
            Check::Pending(done) => Box::pin(async { Renewed::of(&done.await) }),
        }
    }

    /// Corrects one earlier charge, as [`settle`](Self::settle) does: by a list of one, the
    /// default. A store in memory needs no list.
    fn settle_one(&self, settlement: Settlement<'_, Rule>) -> Check<Self::Done> {
        self.settle(vec![settlement])
    }

    /// Removes a key, with the states of all [kinds](crate::algorithm::Algorithm::state_kind) of
    /// rules that charged it.
    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done>;

    /// Checks that this store can run a rule, without a call to a server. By default, it runs every
    /// rule of its type.
    ///
    /// Layers check their rules when they are [given a store](crate::RateLimitLayer::store). A
    /// store that does not run them all overrides it, and answers calls under the others by
    /// [`Error::unsupported`](super::StoreError::unsupported). Wrappers forward it.
    ///
    /// # Errors
    ///
    /// Fails with the reason why the store cannot run the rule, and what to choose instead.
    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        let _ = rule;
        Ok(())
    }

    /// Returns what [fleets](FleetStore) need of this store; `None`, the default, for a store that
    /// does nothing for them.
    ///
    /// [Leases](super::Leased) and [synchronisation](super::Synced) ask for it. It is a method, and
    /// not a bound, so that leases also work in front of stores without it, and stores in a
    /// [`BoxStore`](super::BoxStore) keep it. A store that implements `FleetStore` returns
    /// `Some(self)`. Wrappers that return the errors of the store forward it.
    fn fleet(&self) -> Option<&dyn FleetStore<Rule, Error = Self::Error>>
    where
        Rule: Algorithm,
    {
        None
    }
}

/// The functions of a store that only fleets need: it counts nodes, and takes in the units that
/// they admitted by themselves.
///
/// A store returns itself from [`Store::fleet`]. Each method is optional: [leases](super::Leased)
/// count nodes, [synchronisation](super::Synced) does both.
///
/// ```
/// use std::{collections::HashSet, convert::Infallible, future::ready, sync::Mutex};
/// use tollgate::{Policy, TokenBucket, future::BoxFuture};
/// use tollgate::store::{Backend, driver::{FleetStore, NodeCounts}};
///
/// /// Counts the periods in which a policy was used, for a single node.
/// #[derive(Default)]
/// struct OneNode(Mutex<HashSet<(String, u64)>>);
///
/// impl Backend for OneNode {
///     type Error = Infallible;
/// }
///
/// impl FleetStore<TokenBucket> for OneNode {
///     fn count_node(
///         &self,
///         policy: &Policy,
///         period: u64,
///     ) -> Option<BoxFuture<Result<NodeCounts, Infallible>>> {
///         let mut used = self.0.lock().unwrap();
///         used.insert((policy.name().to_owned(), period));
///         let previous = used.contains(&(policy.name().to_owned(), period - 1));
///         let counts = NodeCounts { current: 1, previous: u64::from(previous) };
///         Some(Box::pin(ready(Ok(counts))))
///     }
/// }
/// # let store = OneNode::default();
/// # assert!(store.count_node(&Policy::new("api"), 7).is_some());
/// ```
pub trait FleetStore<Rule: Algorithm>: Backend {
    /// Counts this process among the nodes that use a policy, in a [period](NodeCounts::PERIOD)
    /// with this number, and returns the counts. `None`, the default, for a store that cannot
    /// count.
    ///
    /// [Leases](super::Leased) and [synchronisation](super::Synced) call it once in a period,
    /// beside a call to the store, by the clock that its answers show. Where these do not show the
    /// clock of the store, the periods are those of the nodes' clocks, of which some may be ahead.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped has counted this node once at most.
    fn count_node(
        &self,
        policy: &Policy,
        period: u64,
    ) -> Option<BoxFuture<Result<NodeCounts, Self::Error>>> {
        let _ = (policy, period);
        None
    }

    /// Adds units that a node admitted by itself, and returns the state of each delta's key
    /// afterwards, in order. `None`, the default, for a store that cannot.
    ///
    /// The units are added by force, so a bucket may go into debt. Each delta is as if it had been
    /// spent at [its instant](Delta::at): a bucket has refilled since, and a window that is over
    /// takes nothing. A delta whose [number](Delta::batch) is not above all those that its node
    /// added to this key changes nothing, because it was added before. A store remembers the
    /// numbers of a key for a minute at least, and one that cannot tell documents it. All deltas of
    /// a call belong to one [shard](Backend::shard).
    ///
    /// # Errors
    ///
    /// Each delta has a result of its own, so that a key that fails does not keep the deltas of
    /// other keys from being added. An [unsupported](super::StoreError::is_unsupported) delta,
    /// whose rule or state the store cannot handle, is not worth sending again. Any other delta
    /// that failed may have been added, and may be sent again.
    ///
    /// An error of the whole call means that the server failed, and that no delta has an answer. A
    /// [timeout](super::Timeout) is such an error, and a [circuit breaker](super::CircuitBreaker)
    /// counts these alone.
    ///
    /// # Cancellation
    ///
    /// Any of the deltas of a future that is dropped may have been added. They may be sent again.
    fn sync(&self, deltas: &[Delta<'_, Rule>]) -> Option<SyncFuture<Rule, Self::Error>> {
        let _ = deltas;
        None
    }
}

/// The future of [`FleetStore::sync`]: for each delta its state or its error, or one error for the
/// whole call.
pub type SyncFuture<Rule, E> =
    BoxFuture<Result<Vec<Result<Pulled<<Rule as Algorithm>::State>, E>>, E>>;

/// The result of [`Store::renew`].
///
/// ```
/// use tollgate::store::{StoreError, driver::Renewed};
///
/// // The answer may have been lost on its way back.
/// let lost: Result<(), _> = Err(StoreError::timeout());
/// assert_eq!(Renewed::of(&lost), Renewed::Unknown);
/// let full: Result<(), _> = Err(StoreError::unwritten("out of memory; give it more"));
/// assert_eq!(Renewed::of(&full), Renewed::NotMade);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The units lie at the new departure.
    Made,
    /// The units lie where they were.
    NotMade,
    /// Nobody knows where the units lie.
    Unknown,
}

impl Renewed {
    /// Returns the result of a settlement. One that failed is unknown, unless its error is a
    /// [`StoreError`](super::StoreError) of a call that changed nothing: it was
    /// [contended](super::StoreError::is_contended), [not
    /// written](super::StoreError::is_unwritten), [not
    /// supported](super::StoreError::is_unsupported), or rejected by a [circuit
    /// breaker](super::CircuitBreaker).
    pub fn of<E: 'static>(done: &Result<(), E>) -> Self {
        let Err(error) = done else {
            return Self::Made;
        };
        let error: Option<&StoreError> = (error as &dyn Any).downcast_ref();
        match error.is_some_and(StoreError::changed_nothing) {
            true => Self::NotMade,
            false => Self::Unknown,
        }
    }
}

/// The error type of a store and its properties that do not depend on the rule.
///
/// ```
/// use tollgate::store::{self, Backend};
///
/// struct Shards {
///     addresses: String,
/// }
///
/// impl Backend for Shards {
///     type Error = store::StoreError;
///
///     fn address(&self) -> Option<&str> {
///         Some(&self.addresses)
///     }
/// }
/// # assert_eq!(Shards { addresses: "127.0.0.1:7000".to_owned() }.unsettled(), None);
/// ```
pub trait Backend {
    /// The error type: [`StoreError`](super::StoreError), or
    /// [`Infallible`](std::convert::Infallible) for a store that cannot fail.
    ///
    /// Wrappers ask a [`StoreError`](super::StoreError) for its kind.
    type Error: Send + 'static;

    /// Returns the address of the server, for the log of its failures; `None`, the default, if
    /// there is none or it is not known.
    ///
    /// For example `127.0.0.1:6379`, and several with commas between. It is logged, so it must
    /// contain no password.
    fn address(&self) -> Option<&str> {
        None
    }

    /// Returns the identity of this store and its clones; `None`, the default, if it is not known.
    /// A wrapper returns that of its store.
    ///
    /// A layer uses it to detect a request that is charged twice by one limit, and limits that
    /// share a state because they have no names
    /// ([`RateLimitLayer::collisions`](crate::RateLimitLayer::collisions)).
    fn id(&self) -> Option<StoreId> {
        None
    }

    /// Returns the number of settlements that failed or may have failed, including those that no
    /// caller waited for.
    ///
    /// Clones share the count. `None`, the default, means that the store does not count:
    /// [`OnFailure`](super::OnFailure) then counts the errors that it sees, and the settlements
    /// whose futures were dropped before they were ready.
    fn unsettled(&self) -> Option<u64> {
        None
    }

    /// Returns the part of the store that holds the state of a key and can fail by itself, such as
    /// a shard of a cluster. 0, the default, for a store without such parts, and while they are not
    /// known yet.
    ///
    /// A [circuit breaker](super::StoreExt::circuit_breaker) has a state for each part. It asks
    /// before each call, so this must be fast and must not block.
    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        let _ = (policy, key);
        0
    }

    /// Returns `true` if this store refuses calls that their rules would admit, as
    /// [`Blocks`](super::Blocks) does. `false`, the default, for all others; a wrapper returns what
    /// its store does.
    ///
    /// A wrapper that admits calls from memory, such as [`leased`](super::StoreExt::leased), would
    /// admit them: it does not [fit](super::Store::fits) such a store.
    fn refuses_beyond_rules(&self) -> bool {
        false
    }

    /// Records a refusal that a wrapper such as [`RememberRefusals`](super::RememberRefusals)
    /// decided without this store. Returns `true` if this store must decide the call, because the
    /// refusal has consequences here. Then the wrapper calls it, and refuses if it cannot decide.
    ///
    /// `false`, the default, for a store to which refusals mean nothing. [`Blocks`](super::Blocks)
    /// counts them; a wrapper returns what its store does.
    fn note_refusal(&self, policy: &Policy, key: &Key) -> bool {
        let _ = (policy, key);
        false
    }

    /// Returns the lines of calls that [wait](crate::InFlight::wait_at_most) until others end;
    /// `None` for all stores but [`Local`](super::Local). A wrapper returns those of its store.
    #[doc(hidden)]
    fn lines(&self) -> Option<&Arc<Lines>> {
        None
    }
}

/// The identity of a store and its clones within this process, for [`Backend::id`].
///
/// ```
/// use std::sync::Arc;
/// use tollgate::store::{Backend, driver::StoreId};
///
/// #[derive(Clone, Default)]
/// struct Files {
///     folder: Arc<str>,
/// }
///
/// impl Backend for Files {
///     type Error = tollgate::store::StoreError;
///
///     fn id(&self) -> Option<StoreId> {
///         Some(StoreId::of(&self.folder))
///     }
/// }
///
/// let files = Files { folder: "a".into() };
/// assert_eq!(files.id(), files.clone().id());
/// assert_ne!(files.id(), Files { folder: "a".into() }.id());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(usize);

impl StoreId {
    /// Returns an identity from the value that the clones of a store share. No other store has it
    /// while one of them is alive.
    pub fn of<T: ?Sized>(shared: &Arc<T>) -> Self {
        Self(Arc::as_ptr(shared).addr())
    }

    pub(crate) fn number(self) -> u64 {
        self.0 as u64
    }
}

impl<S: Backend + ?Sized> Backend for Arc<S> {
    type Error = S::Error;

    delegate!(Backend, self => **self);
}

impl<Rule, S: Store<Rule> + ?Sized> Store<Rule> for Arc<S> {
    type Answer = S::Answer;
    type Done = S::Done;

    delegate!(Store<Rule>, self => **self);
}
