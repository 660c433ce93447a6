//! Deciding here while a store elsewhere fails.

mod answer;
mod batch;
mod book;
mod builder;
mod call;
mod debts;
mod done;
mod share;
mod shared;

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, atomic::Ordering},
};

pub use self::{
    answer::FallBackFuture, builder::FallBackBuilder, done::FallBackDone, share::Scalable,
};

use self::{
    call::{What, ask},
    done::{reset, settle},
    shared::Shared,
};
use crate::{
    key::Key,
    outcome::Policy,
    store::{Ask, Backend, Check, Error, NeverFails, Settlement, Store},
};

/// A store that is replaced by a local one, call by call, while it fails.
///
/// Made by [`fall_back_to`](super::super::StoreExt::fall_back_to). A call that fails is decided by the local store,
/// under the [share of its rule](FallBackBuilder::share) that this node may admit on its own. What the local store admits
/// is owed to the remote one, and settled there when it answers again.
///
/// # What it guarantees
///
/// Under token buckets of burst b and rate r, where each of n nodes has a share of 1/n:
///
/// - **While the store is lost, each node admits at most b/n above the rule**, all of them b: the local store's bucket
///   begins full, whatever the remote one held. Another loss does not fill it again.
/// - **When the store is back, there is no fresh burst.** What the local store still remembers of a key as spent, at
///   most b/n, is settled before this node asks the remote store about that key. So a span of time that begins while
///   the store is lost holds the rule, and for each time that it is lost within the span, b/n may pass above it.
/// - What a node has not settled yet may come on top, at most b/n: of keys that it is not asked for again, until
///   [other calls](FallBackBuilder::per_call) take them along; and of calls on a key in the moment in which it is
///   settled, which are decided locally.
/// - However often the store fails, no node admits more on its own than its share of the rule.
///
/// A settlement of which it is not known whether it was made, because it timed out or was dropped, is made again: its
/// client may pay twice. A debt for which there is [no room](Self::lost) is forgotten: its key may have a fresh burst.
///
/// # Contention
///
/// A store that [lost every race](Error::is_contended) for a key is there and lets others pass on it. What a local store
/// admitted beside them would be above the limit, and who wanted more could have it by contending. So such a call is not
/// decided here: it is undecided, and [turned away](FallBackBuilder::when_contended); also where what was lost is the
/// settlement that came before its question. A client's own settlement that lost is made in the local store, and owed.
///
/// # Log
///
/// With the feature `tracing`, failures are logged as those of [`OnFailure`](super::super::OnFailure#log) are.
///
/// # What it costs
///
/// The first call on a key that owes asks by `look`, which changes nothing, whether the store is there; then it
/// settles, and then it asks: three round trips. Later calls settle some other debts beside their own question. Nothing
/// runs in the background: what is owed is settled as calls come. Each of these calls waits as long for a store that is
/// lost as the store lets it: put a [circuit breaker](super::BehindBreaker) inside, and a deadline into that.
///
/// # Settling and resetting
///
/// A settlement that the remote store does not take is made in the local one, and changes what is owed. `reset` is
/// carried out in both.
///
/// # Cancellation
///
/// Of a call that is dropped, at most what was asked for is spent, once in each store. The debts that it was settling
/// are owed again.
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{Ask, Check, Error, Local, Store, StoreExt};
/// # use tollgate::{key::Key, store::{Backend, Decisions, Never, Settlement}};
/// # fn down<T>() -> Check<Never<Result<T, Error>>> { Check::Ready(Err(Error::unavailable("connection refused"))) }
/// # struct Down;
/// # impl Backend for Down { type Error = Error; }
/// # impl Store<TokenBucket> for Down {
/// #     type Answer = Never<Result<Decisions, Error>>;
/// #     type Done = Never<Result<(), Error>>;
/// #     fn acquire(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> { down() }
/// #     fn look(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> { down() }
/// #     fn settle(&self, _: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> { down() }
/// #     fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> { down() }
/// # }
///
/// // `Down` cannot be reached. This node is one of three.
/// let store = Down.fall_back_to(Local::new()).share(1, 3);
/// let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(9));
/// let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
/// let admitted = (0..9).filter(|_| {
///     matches!(store.acquire(&ask), Check::Ready(Ok(decisions)) if decisions.is_admitted())
/// });
/// assert_eq!(admitted.count(), 3);
/// assert_eq!((store.decided(), store.owing()), (9, 1));
/// ```
pub struct FallBackTo<S, L, Rule> {
    shared: Arc<Shared<S, L, Rule>>,
}

// Relaxed throughout: counts are read for a report and order nothing.
impl<S, L, Rule> FallBackTo<S, L, Rule> {
    /// How often the remote store could not do what was asked of it, contention aside; all clones together.
    pub fn failures(&self) -> u64 {
        self.shared.failures.failures()
    }

    /// How often every attempt of the remote store lost its race; all clones together.
    pub fn contentions(&self) -> u64 {
        self.shared.failures.contentions()
    }

    /// How many calls the local store decided.
    pub fn decided(&self) -> u64 {
        self.shared.decided.load(Ordering::Relaxed)
    }

    /// How many calls were turned away because this node has no share of their rule.
    pub fn turned_away(&self) -> u64 {
        self.shared.turned_away.load(Ordering::Relaxed)
    }

    /// How many keys owe what the local store admitted; at most the [capacity](FallBackBuilder::capacity).
    pub fn owing(&self) -> usize {
        self.shared.debts.len()
    }

    /// The units that were settled on the remote store.
    pub fn settled(&self) -> u64 {
        self.shared.debts.settled()
    }

    /// The units that are never settled, for want of memory.
    pub fn lost(&self) -> u64 {
        self.shared.debts.lost()
    }
}

impl<S, L, Rule> Clone for FallBackTo<S, L, Rule> {
    fn clone(&self) -> Self {
        let shared = Arc::clone(&self.shared);
        Self { shared }
    }
}

impl<S: fmt::Debug, L: fmt::Debug, Rule> fmt::Debug for FallBackTo<S, L, Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallBackTo")
            .field("remote", &self.shared.remote)
            .field("local", &self.shared.local)
            .field("failures", &self.failures())
            .field("owing", &self.owing())
            .finish_non_exhaustive()
    }
}

impl<S: Backend, L, Rule> Backend for FallBackTo<S, L, Rule> {
    type Error = Infallible;

    fn address(&self) -> Option<&str> {
        self.shared.remote.address()
    }
}

impl<S, L, Rule> Store<Rule> for FallBackTo<S, L, Rule>
where
    S: Store<Rule, Error: Into<Error>>,
    L: Store<Rule, Error: NeverFails>,
    Rule: Clone,
{
    type Answer = FallBackFuture<S, L, Rule>;
    type Done = FallBackDone<S, L, Rule>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        ask(&self.shared, asks, What::Acquire)
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        ask(&self.shared, asks, What::Look)
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        settle(&self.shared, settlements)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        reset(&self.shared, policy, key)
    }
}
