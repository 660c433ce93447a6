//! A store with faults.

use std::{
    collections::VecDeque,
    error, fmt,
    future::{Future, IntoFuture, ready},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker, ready},
};

use pin_project_lite::pin_project;

use crate::{
    algorithm::Algorithm,
    key::Key,
    locks::lock,
    policy::Policy,
    random::SharedRandom,
    store::{
        Ask, Backend, Check, Delta, FleetStore, Settlement, Store, StoreError, SyncFuture,
        check::CheckFuture, delegate,
    },
};

/// A wrapper that injects faults into a store, for tests of outages.
///
/// A [switch](Faults) sets the faults: by a script, at random with a seed, or until it is turned
/// off. It works while calls are in flight. Faults affect `acquire`, `look`, `settle`, `reset` and
/// `sync`. Calls without a fault go to the store unchanged. The wrapper needs no runtime and no
/// clock. Clones share the store and the switch.
///
/// A store that answers at once decides when it is called, also under a fault; another one while
/// the answer is polled.
///
/// # Examples
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{Local, Store, StoreExt, driver::Ask};
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
        E: Into<StoreError>,
    {
        let failing = |error| (None, FaultEffect::Failing(Some(error)));
        let (answer, effect) = match self.faults.next() {
            None => match call() {
                Check::Ready(result) => return Check::Ready(result.map_err(Into::into)),
                answer => (Some(answer), FaultEffect::Late(0)),
            },
            Some(Fault::Unavailable) => failing(StoreError::unavailable(InjectedFault)),
            Some(Fault::Contended) => failing(StoreError::contended()),
            Some(Fault::Lost) => (Some(call()), FaultEffect::Lost),
            Some(Fault::Silent) => (None, FaultEffect::Silent),
            Some(Fault::Late(polls)) => (Some(call()), FaultEffect::Late(polls)),
            Some(Fault::Held) => {
                let answer = call();
                let since = self.faults.lock().released;
                (Some(answer), FaultEffect::Held(self.faults(), since))
            }
        };
        let answer = answer.map(IntoFuture::into_future);
        Check::Pending(FaultyFuture { answer, effect })
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
    type Error = StoreError;

    delegate!(Backend, self => self.store);
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
    S: Store<Rule, Error: Into<StoreError> + 'static>,
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

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.with_fault(|| self.store.reset(policy, key))
    }

    delegate!(Store<Rule>, self => self.store; fits);

    fn fleet(&self) -> Option<&dyn FleetStore<Rule, Error = Self::Error>>
    where
        Rule: Algorithm,
    {
        Some(self)
    }
}

/// Pushes deltas. It counts no nodes, so that faults meet only the calls of a test.
impl<Rule, S> FleetStore<Rule> for Faulty<S>
where
    Rule: Algorithm,
    S: Store<Rule, Error: Into<StoreError> + 'static>,
{
    fn sync(&self, deltas: &[Delta<'_, Rule>]) -> Option<SyncFuture<Rule, StoreError>> {
        let syncing = self.store.fleet()?.sync(deltas)?;
        let syncing: SyncFuture<Rule, StoreError> = Box::pin(async move {
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

/// The fault of one call.
///
/// # Examples
///
/// ```
/// use tollgate::{store::Local, TokenBucket, testing::{Fault, Faulty}};
///
/// let store = Faulty::new(Local::<TokenBucket>::new());
/// // The second call is not answered.
/// store.faults().script([None, Some(Fault::Silent)]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The store does not decide, and returns that it is
    /// [unavailable](crate::store::StoreError::is_unavailable).
    Unavailable,
    /// The store does not decide, and returns that it is
    /// [contended](crate::store::StoreError::is_contended).
    Contended,
    /// The store decides, and its answer is lost: the caller gets a
    /// [timeout](crate::store::StoreError::is_timeout).
    Lost,
    /// The store does not decide, and never answers.
    Silent,
    /// The store decides, and answers after this many polls. Each poll wakes the task.
    Late(u32),
    /// The store decides, and answers after the next [release](Faults::release).
    Held,
}

/// Switches the faults of a [`Faulty`] store, and counts them. Clones share one switch.
///
/// # Examples
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket, store::{Local, Store, StoreExt, driver::Ask}};
/// use tollgate::testing::{Fault, Faulty};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let faulty = Faulty::new(Local::new());
/// let faults = faulty.faults();
/// let store = faulty.fail_open();
/// let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(2));
/// let ask = || [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
///
/// faults.always(Fault::Unavailable);
/// let Ok(during) = store.acquire(&ask()).await;
/// faults.none();
/// let Ok(after) = store.acquire(&ask()).await;
/// assert!(during.as_slice()[0].is_undecided() && !after.as_slice()[0].is_undecided());
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<FaultPlan>>);

/// The numbers of calls of a [`Faulty`] store, by their faults.
///
/// # Examples
///
/// ```
/// use tollgate::{store::Local, TokenBucket, testing::{FaultCounts, Faulty}};
///
/// let counts: FaultCounts = Faulty::new(Local::<TokenBucket>::new()).faults().counts();
/// assert_eq!((counts.passed, counts.lost), (0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct FaultCounts {
    /// Calls without a fault.
    pub passed: u64,
    /// Calls that met [`Fault::Unavailable`].
    pub unavailable: u64,
    /// Calls that met [`Fault::Contended`].
    pub contended: u64,
    /// Calls that met [`Fault::Lost`].
    pub lost: u64,
    /// Calls that met [`Fault::Silent`].
    pub silent: u64,
    /// Calls that met [`Fault::Late`].
    pub late: u64,
    /// Calls that met [`Fault::Held`], released or not.
    pub held: u64,
}

#[derive(Debug, Default)]
struct FaultPlan {
    /// The faults of the next calls, before `default` applies.
    script: VecDeque<Option<Fault>>,
    default: Option<ChanceFault>,
    counts: FaultCounts,
    /// The number of calls of `release`.
    released: u64,
    wakers: Vec<Waker>,
}

/// One of these faults, in one call of so many.
#[derive(Debug)]
struct ChanceFault {
    random: SharedRandom,
    once_in: u64,
    faults: Vec<Fault>,
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, FaultPlan> {
        lock(&self.0)
    }

    /// Sets the faults of the next calls, one for each; `None` is a call without a fault.
    ///
    /// Appends to an earlier script. Calls after the script have the default fault.
    pub fn script(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.lock().script.extend(faults);
    }

    /// Sets the default fault: each call beyond the script meets this one.
    pub fn always(&self, fault: Fault) {
        self.by_chance(0, 1, [fault]);
    }

    /// Sets a random default fault: one call in `once_in` meets one of these faults.
    ///
    /// The faults are reproducible for a seed and an order of calls. An empty list is no fault.
    pub fn by_chance(&self, seed: u64, once_in: u64, faults: impl IntoIterator<Item = Fault>) {
        let faults = faults.into_iter().collect();
        self.lock().default = Some(ChanceFault {
            random: SharedRandom::new(seed),
            once_in,
            faults,
        });
    }

    /// Removes the script and the default fault. Held calls stay held.
    pub fn none(&self) {
        let mut state = self.lock();
        state.script.clear();
        state.default = None;
    }

    /// Releases all [held](Fault::Held) calls.
    pub fn release(&self) {
        let wakers = {
            let mut state = self.lock();
            state.released += 1;
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns the numbers of calls of all clones of the store, by their faults.
    pub fn counts(&self) -> FaultCounts {
        self.lock().counts
    }

    /// Returns the fault of the next call, and counts it.
    fn next(&self) -> Option<Fault> {
        let mut state = self.lock();
        let fault = match state.script.pop_front() {
            Some(scripted) => scripted,
            None => state.default.as_ref().and_then(ChanceFault::draw),
        };
        let counts = &mut state.counts;
        let count = match fault {
            None => &mut counts.passed,
            Some(Fault::Unavailable) => &mut counts.unavailable,
            Some(Fault::Contended) => &mut counts.contended,
            Some(Fault::Lost) => &mut counts.lost,
            Some(Fault::Silent) => &mut counts.silent,
            Some(Fault::Late(_)) => &mut counts.late,
            Some(Fault::Held) => &mut counts.held,
        };
        *count += 1;
        fault
    }

    /// Returns `true` if calls held since release `since` are released. Otherwise `waker` is woken
    /// by the next release.
    fn is_released(&self, since: u64, waker: &Waker) -> bool {
        let mut state = self.lock();
        if state.released > since {
            return true;
        }
        if !state.wakers.iter().any(|known| known.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
        false
    }
}

impl ChanceFault {
    fn draw(&self) -> Option<Fault> {
        let is_hit = self.random.once_in(self.once_in);
        // Drawn in any case, so that later draws do not depend on this one.
        let index = self.random.index(self.faults.len());
        self.faults.get(index).copied().filter(|_| is_hit)
    }
}

pin_project! {
    /// The future of a [`Faulty`] store.
    ///
    /// ```
    /// use tollgate::{Cost, Policy, TokenBucket, store::{Local, Store, driver::{Ask, Check}}};
    /// use tollgate::testing::{Fault, Faulty};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let store = Faulty::new(Local::new());
    /// store.faults().always(Fault::Late(3));
    /// let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(2));
    /// let check = store.acquire(&[Ask::new(&policy, &rule, "alice".into(), Cost::ONE)]);
    /// assert!(matches!(check, Check::Pending(_)));
    /// assert!(check.await.unwrap().is_admitted());
    /// # }
    /// ```
    #[must_use = "futures do nothing unless polled"]
    pub struct FaultyFuture<F: Future> {
        #[pin]
        answer: Option<CheckFuture<F>>,
        effect: FaultEffect,
    }
}

/// The effect of a fault on an answer.
enum FaultEffect {
    /// The number of polls before the answer.
    Late(u32),
    /// The switch that releases the answer, and the number of releases when the call began.
    Held(Faults, u64),
    Lost,
    Failing(Option<StoreError>),
    Silent,
}

impl_debug!([F: Future] FaultyFuture<F>);

impl<F, T, E> Future for FaultyFuture<F>
where
    F: Future<Output = Result<T, E>>,
    E: Into<StoreError>,
{
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.effect {
            FaultEffect::Late(0) | FaultEffect::Lost => {}
            FaultEffect::Late(polls) => {
                *polls -= 1;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            FaultEffect::Held(faults, since) => {
                if !faults.is_released(*since, cx.waker()) {
                    return Poll::Pending;
                }
            }
            FaultEffect::Failing(error) => {
                return error
                    .take()
                    .map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
            }
            FaultEffect::Silent => return Poll::Pending,
        }
        let Some(answer) = this.answer.as_pin_mut() else {
            return Poll::Pending;
        };
        let answer = ready!(answer.poll(cx));
        Poll::Ready(match this.effect {
            FaultEffect::Lost => Err(StoreError::timeout()),
            _ => answer.map_err(Into::into),
        })
    }
}
