//! Not asking again what was refused.

mod future;
mod memory;
mod refusal;

use std::{fmt, future::Future, sync::Arc, time::Duration};

pub use self::future::{ForgetFuture, RememberFuture};

use self::{
    future::{Forget, Note},
    memory::Memory,
};
use crate::{
    key::Key,
    policy::Policy,
    store::{Ask, Backend, Check, Settlement, Store},
    time::{Clock, SystemClock},
};

/// A store whose refusals are remembered here until they end, so that who keeps knocking costs no round trip.
///
/// Made by [`remember_refusals`](super::super::StoreExt::remember_refusals). A key that was refused under a rule, and
/// told to come again after a time, is refused here until then, at the same cost or a higher one. The same cost cannot
/// pass sooner, unless somebody gives something back.
///
/// # What it says
///
/// All waits are those that the store told, less the time that has passed since; `remaining` is as the store told it. A
/// higher cost than the one that was refused is told the wait of that one: then the store is asked, and may refuse once
/// more.
///
/// # When it is late
///
/// `settle` and `reset` through this store and its clones forget what is known of a key. A refund or a reset that
/// another node makes, or that is dropped before the store has answered, is noticed when the refusal ends.
///
/// # What is remembered
///
/// The refusals of calls that ask for one thing: what refuses several asks together may be any of them. Of a key the
/// last one, until something of it passes at a lower cost; at most [so many](Self::capacity) in all, those that end
/// first giving way. A refusal [for ever](crate::Decision::retry_after) is remembered [for a second](Self::forever_for).
/// `look` always asks the store.
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{Ask, Check, Local, Store, StoreExt};
///
/// // `Local` stands for a store on another machine.
/// let store = Local::new().remember_refusals().capacity(1000);
/// let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(1));
/// let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
/// let is_admitted = || matches!(store.acquire(&ask), Check::Ready(Ok(decisions)) if decisions.is_admitted());
///
/// assert!(is_admitted());
/// for _ in 0..10 {
///     assert!(!is_admitted());
/// }
/// // The first refusal came from the store.
/// assert_eq!((store.remembered(), store.hits()), (1, 9));
/// ```
pub struct RememberRefusals<S, Rule, C = SystemClock> {
    store: S,
    memory: Arc<Memory<Rule>>,
    forever_for: Duration,
    clock: C,
}

impl<S, Rule> RememberRefusals<S, Rule> {
    pub(in crate::store) fn new(store: S) -> Self {
        Self {
            store,
            memory: Arc::new(Memory::new(16_384)),
            forever_for: Duration::from_secs(1),
            clock: SystemClock::default(),
        }
    }
}

impl<S, Rule, C> RememberRefusals<S, Rule, C> {
    /// The same with room for so many refusals, 16,384 by default; 0 remembers none. Begins with none.
    ///
    /// Each takes about 300 bytes under a token bucket, once it was used.
    #[must_use]
    pub fn capacity(self, refusals: usize) -> Self {
        let memory = Arc::new(Memory::new(refusals));
        Self { memory, ..self }
    }

    /// The same, remembering for so long what never passes, as a cost above the capacity; a second by default.
    ///
    /// It matters where such a cost becomes possible without another rule.
    #[must_use]
    pub fn forever_for(self, time: Duration) -> Self {
        Self {
            forever_for: time,
            ..self
        }
    }

    /// The same by another clock than the system's. Where it steps back, the store is asked.
    #[must_use]
    pub fn clock<D: Clock>(self, clock: D) -> RememberRefusals<S, Rule, D> {
        RememberRefusals {
            store: self.store,
            memory: self.memory,
            forever_for: self.forever_for,
            clock,
        }
    }

    /// How often a call was refused without the store being asked, all clones together.
    pub fn hits(&self) -> u64 {
        self.memory.hits()
    }

    /// How many refusals of the store were remembered.
    pub fn remembered(&self) -> u64 {
        self.memory.remembered()
    }

    /// How many of them gave way to another one before they ended.
    pub fn evicted(&self) -> u64 {
        self.memory.evicted()
    }

    /// How many are there, some of them ended; at most the [capacity](Self::capacity).
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether none is there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets keys by their hashes once `check` is done.
    fn forget<F: Future>(
        &self,
        hashes: impl IntoIterator<Item = u64>,
        change: impl FnOnce(&S) -> Check<F>,
    ) -> Check<ForgetFuture<F, Rule>> {
        let forget = Forget::new(&self.memory, hashes);
        match change(&self.store) {
            Check::Ready(done) => Check::Ready(done),
            Check::Pending(done) => Check::Pending(ForgetFuture::new(done, forget)),
        }
    }
}

impl<S: Clone, Rule, C: Clone> Clone for RememberRefusals<S, Rule, C> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            memory: Arc::clone(&self.memory),
            forever_for: self.forever_for,
            clock: self.clock.clone(),
        }
    }
}

impl<S: fmt::Debug, Rule, C> fmt::Debug for RememberRefusals<S, Rule, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RememberRefusals")
            .field("store", &self.store)
            .field("hits", &self.hits())
            .field("remembered", &self.remembered())
            .field("evicted", &self.evicted())
            .finish_non_exhaustive()
    }
}

impl<S: Backend, Rule, C> Backend for RememberRefusals<S, Rule, C> {
    type Error = S::Error;

    fn address(&self) -> Option<&str> {
        self.store.address()
    }

    fn unsettled(&self) -> Option<u64> {
        self.store.unsettled()
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        self.store.shard(policy, key)
    }
}

impl<S, Rule, C> Store<Rule> for RememberRefusals<S, Rule, C>
where
    S: Store<Rule>,
    Rule: Clone + PartialEq,
    C: Clock + Clone,
{
    type Answer = RememberFuture<S::Answer, Rule, C>;
    type Done = ForgetFuture<S::Done, Rule>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let [ask] = asks else {
            return unheard(self.store.acquire(asks));
        };
        let place = match self.memory.find(ask, self.clock.now()) {
            Ok(refusal) => return Check::Ready(Ok(refusal.into())),
            Err(place) => place,
        };
        let note = || Note {
            memory: Arc::clone(&self.memory),
            place,
            asked: (ask.policy().clone(), *ask.key(), ask.rule().clone()),
            cost: ask.cost(),
            forever_for: self.forever_for,
            clock: self.clock.clone(),
        };
        match self.store.acquire(asks) {
            Check::Ready(answer) => {
                match &answer {
                    Ok(decisions) if decisions.is_admitted() => self.memory.passed(place),
                    _ => note().take(&answer),
                }
                Check::Ready(answer)
            }
            Check::Pending(answer) => Check::Pending(RememberFuture::new(answer, Some(note()))),
        }
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        unheard(self.store.look(asks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let hash = |of: &Settlement<'_, Rule>| self.memory.hash(of.policy, &of.key);
        let hashes: Vec<_> = settlements.iter().map(hash).collect();
        self.forget(hashes, |store| store.settle(settlements))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let hash = self.memory.hash(policy, key);
        self.forget([hash], |store| store.reset(policy, key))
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        self.store.fits(rule)
    }
}

/// An answer of which nothing is remembered.
fn unheard<F: Future, Rule, C>(check: Check<F>) -> Check<RememberFuture<F, Rule, C>>
where
    RememberFuture<F, Rule, C>: Future<Output = F::Output>,
{
    match check {
        Check::Ready(answer) => Check::Ready(answer),
        Check::Pending(answer) => Check::Pending(RememberFuture::new(answer, None)),
    }
}
