//! A store that fails when it is told to.

mod future;
mod plan;

use std::{error, fmt, future::Future};

pub use self::{
    future::FaultyFuture,
    plan::{FaultCounts, Faults},
};

use crate::{
    key::Key,
    policy::Policy,
    store::{Ask, Backend, Check, Error, Settlement, Store},
};

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// Not decided, and told so: the store [cannot be reached](Error::is_unavailable).
    Unavailable,
    /// Not decided, and told so: every attempt [lost its race](Error::is_contended).
    Contended,
    /// Decided, and the answer lost: a [timeout](Error::is_timeout) for who asked.
    Lost,
    /// Not decided, and never answered.
    Silent,
    /// Decided, and answered when it was polled so many times more. It wakes who asked at each.
    Late(u32),
    /// Decided, and answered when somebody [releases](Faults::release) what is held.
    Held,
}

/// A store that fails when it is told to: for tests of what has to live with that.
///
/// Faults come by a script, by chance with a seed, or until they are switched off, by a [handle](Faults) that
/// works while calls are under way. They hit whatever is called: `acquire`, `look`, `settle` and `reset`. What is not
/// hit goes to the store as it is. There is no runtime, and no time, in it. Clones share store and faults.
///
/// What is decided is decided when it is asked for, where the store answers at once, and as the answer is polled where it
/// does not.
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{Ask, Local, Store, StoreExt};
/// use tollgate::testing::{Fault, Faulty};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let faulty = Faulty::new(Local::new());
/// let faults = faulty.faults();
/// let store = faulty.fail_closed();
///
/// let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(2));
/// let ask = || [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
/// faults.script([None, Some(Fault::Lost)]);
/// let Ok(passes) = store.acquire(&ask()).await;
/// let Ok(lost) = store.acquire(&ask()).await;
/// let Ok(refused) = store.acquire(&ask()).await;
/// assert!(passes.is_admitted() && !refused.is_admitted());
/// // Nobody heard of it, but it was spent.
/// assert!(lost.as_slice()[0].is_undecided());
/// assert_eq!((faults.counts().lost, store.failures()), (1, 1));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Faulty<S> {
    store: S,
    faults: Faults,
}

impl<S> Faulty<S> {
    /// The same store, without faults at first.
    pub fn new(store: S) -> Self {
        let faults = Faults::default();
        Self { store, faults }
    }

    /// What switches the faults, and counts them.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    fn meet<F, T, E>(&self, call: impl FnOnce() -> Check<F>) -> Check<FaultyFuture<F>>
    where
        F: Future<Output = Result<T, E>>,
        E: Into<Error>,
    {
        Check::Pending(match self.faults.next() {
            None => match call() {
                Check::Ready(result) => return Check::Ready(result.map_err(Into::into)),
                answer => FaultyFuture::late(answer, 0),
            },
            Some(Fault::Unavailable) => FaultyFuture::failing(Error::unavailable(Made)),
            Some(Fault::Contended) => FaultyFuture::failing(Error::contended()),
            Some(Fault::Lost) => FaultyFuture::lost(call()),
            Some(Fault::Silent) => FaultyFuture::silent(),
            Some(Fault::Late(polls)) => FaultyFuture::late(call(), polls),
            Some(Fault::Held) => FaultyFuture::held(call(), self.faults()),
        })
    }
}

/// Why a [`Faulty`] store cannot be reached.
#[derive(Debug)]
struct Made;

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fault that a test made")
    }
}

impl error::Error for Made {}

impl<S: Backend> Backend for Faulty<S> {
    type Error = Error;

    fn address(&self) -> Option<&str> {
        self.store.address()
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        self.store.shard(policy, key)
    }
}

impl<Rule, S> Store<Rule> for Faulty<S>
where
    S: Store<Rule, Error: Into<Error>>,
{
    type Answer = FaultyFuture<S::Answer>;
    type Done = FaultyFuture<S::Done>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.meet(|| self.store.acquire(asks))
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.meet(|| self.store.look(asks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        self.meet(|| self.store.settle(settlements))
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        self.store.fits(rule)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.meet(|| self.store.reset(policy, key))
    }
}
