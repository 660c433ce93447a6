//! The faulty store.

use std::{
    error, fmt,
    future::{Future, ready},
};

use super::{Fault, Faults, FaultyFuture};
use crate::{
    algorithm::Algorithm,
    key::Key,
    policy::Policy,
    store::{Ask, Backend, Check, Delta, Error, Settlement, Store, StoreId, SyncFuture},
};

/// A wrapper that injects faults into a store, for tests of outages.
///
/// A [switch](Faults) sets the faults: by a script, at random with a seed, or until it is turned off. It works while calls
/// are in flight. Faults affect `acquire`, `look`, `settle`, `reset` and `sync`. Calls without a fault go to the store unchanged. The
/// wrapper needs no runtime and no clock. Clones share the store and the switch.
///
/// A store that answers at once decides when it is called, also under a fault; another one while the answer is polled.
///
/// # Examples
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
/// // Its answer was lost, but it was charged.
/// assert!(lost.as_slice()[0].is_undecided());
/// assert_eq!((faults.counts().lost, store.failures()), (1, 1));
/// # }
/// ```
#[doc(alias("fault injection", "chaos", "mock"))]
#[derive(Clone, Debug)]
pub struct Faulty<S> {
    store: S,
    faults: Faults,
}

impl<S> Faulty<S> {
    /// Wraps a store, without faults at first.
    pub fn new(store: S) -> Self {
        let faults = Faults::default();
        Self { store, faults }
    }

    /// Returns the switch of the faults.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    fn with_fault<F, T, E>(&self, call: impl FnOnce() -> Check<F>) -> Check<FaultyFuture<F>>
    where
        F: Future<Output = Result<T, E>>,
        E: Into<Error>,
    {
        Check::Pending(match self.faults.next() {
            None => match call() {
                Check::Ready(result) => return Check::Ready(result.map_err(Into::into)),
                answer => FaultyFuture::late(answer, 0),
            },
            Some(Fault::Unavailable) => FaultyFuture::failing(Error::unavailable(InjectedFault)),
            Some(Fault::Contended) => FaultyFuture::failing(Error::contended()),
            Some(Fault::Lost) => FaultyFuture::lost(call()),
            Some(Fault::Silent) => FaultyFuture::silent(),
            Some(Fault::Late(polls)) => FaultyFuture::late(call(), polls),
            Some(Fault::Held) => FaultyFuture::held(call(), self.faults()),
        })
    }
}

/// The cause of the error of an unavailable [`Faulty`] store.
#[derive(Debug)]
struct InjectedFault;

impl fmt::Display for InjectedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fault injected by a test")
    }
}

impl error::Error for InjectedFault {}

impl<S: Backend> Backend for Faulty<S> {
    type Error = Error;

    fn id(&self) -> Option<StoreId> {
        self.store.id()
    }

    fn address(&self) -> Option<&str> {
        self.store.address()
    }

    /// Returns the count of the wrapped store, without the settlements that met a fault.
    fn unsettled(&self) -> Option<u64> {
        self.store.unsettled()
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        self.store.shard(policy, key)
    }

    fn refuses_beyond_rules(&self) -> bool {
        self.store.refuses_beyond_rules()
    }

    fn note_refusal(&self, policy: &Policy, key: &Key) -> bool {
        self.store.note_refusal(policy, key)
    }
}

/// Publishes the counters of the wrapped store.
#[cfg(feature = "metrics")]
impl<S: crate::observe::Publish> crate::observe::Publish for Faulty<S> {
    fn publish(&self, name: &str) {
        self.store.publish(name);
    }
}

impl<Rule, S> Store<Rule> for Faulty<S>
where
    S: Store<Rule, Error: Into<Error> + 'static>,
{
    type Answer = FaultyFuture<S::Answer>;
    type Done = FaultyFuture<S::Done>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.with_fault(|| self.store.acquire(asks))
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.with_fault(|| self.store.look(asks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        self.with_fault(|| self.store.settle(settlements))
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        self.store.fits(rule)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.with_fault(|| self.store.reset(policy, key))
    }

    fn sync(&self, deltas: &[Delta<'_, Rule>]) -> Option<SyncFuture<Rule, Error>>
    where
        Rule: Algorithm<State: Send + 'static>,
    {
        let syncing = self.store.sync(deltas)?;
        let syncing: SyncFuture<Rule, Error> = Box::pin(async move {
            let synced = syncing.await.map_err(Into::into)?;
            Ok(synced
                .into_iter()
                .map(|one| one.map_err(Into::into))
                .collect())
        });
        Some(match self.with_fault(|| Check::Pending(syncing)) {
            Check::Ready(result) => Box::pin(ready(result)),
            Check::Pending(syncing) => Box::pin(syncing),
        })
    }
}
