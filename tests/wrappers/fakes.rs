//! A fake store on another machine, with faults on the way there.
#![allow(unreachable_pub, reason = "items of a test module")]

use std::{
    collections::VecDeque,
    fmt,
    future::{Future, pending},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate::{
    Cost, Decision, Policy, TokenBucket,
    algorithm::Algorithm,
    key::Key,
    store::{
        Backend, Local, LocalBuilder, Store, StoreError,
        driver::{Ask, Check, Decisions, Settlement},
    },
    time::{Clock, ManualClock, TokioClock},
};

/// The fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answered within the call.
    AtOnce,
    /// Answered at the first poll.
    None,
    /// Answered after this delay.
    Slow(Duration),
    /// Fails within the call.
    FailsAtOnce(Kind),
    /// Fails at the first poll.
    Fails(Kind),
    /// Decided, but the answer is lost.
    Lossy(Kind),
    /// Neither decided nor answered.
    Silent,
    /// Decided, and never answered.
    Mute,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Timeout,
    Unavailable,
    Contended,
    Unsupported,
    Unwritten,
    Other,
}

impl Kind {
    pub const ALL: [Self; 6] = [
        Self::Timeout,
        Self::Unavailable,
        Self::Contended,
        Self::Unsupported,
        Self::Unwritten,
        Self::Other,
    ];
    /// The kinds that concern the server.
    pub const FAILURES: [Self; 3] = [Self::Timeout, Self::Unavailable, Self::Other];

    pub fn error(self) -> StoreError {
        match self {
            Self::Timeout => StoreError::timeout(),
            Self::Unavailable => StoreError::unavailable("connection refused"),
            Self::Contended => StoreError::contended(),
            Self::Unsupported => StoreError::unsupported("no such rule in this store"),
            Self::Unwritten => StoreError::unwritten("it is full"),
            Self::Other => StoreError::other("what it said makes no sense"),
        }
    }
}

/// The operation of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Acquire,
    Look,
    Settle,
    Reset,
}

/// A store whose every call about asks is this one; corrections and resets change nothing.
#[derive(Clone)]
pub struct OnlyAsked<F>(pub F);

impl<F> Backend for OnlyAsked<F> {
    type Error = StoreError;
}

impl<F, Answer> Store<TokenBucket> for OnlyAsked<F>
where
    F: Fn() -> Answer + Send + Sync,
    Answer: Future<Output = Result<Decisions, StoreError>> + Send + 'static,
{
    type Answer = Later<Decisions>;
    type Done = Later<()>;

    fn acquire(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        Check::Pending(Box::pin((self.0)()))
    }
    fn look(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        self.acquire(asks)
    }
    fn settle(&self, _: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> {
        Check::Ready(Ok(()))
    }
    fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> {
        Check::Ready(Ok(()))
    }
}

/// A [`Local`] behind a network that fails by plan.
pub struct Remote<A: Algorithm, C> {
    pub local: Local<A, C>,
    line: Arc<Line>,
}

#[derive(Default)]
struct Line {
    usual: Mutex<Option<Fault>>,
    plan: Mutex<VecDeque<Fault>>,
    calls: Mutex<Vec<Op>>,
    running: AtomicU64,
    dropped: AtomicU64,
}

impl<A: Algorithm, C> Clone for Remote<A, C> {
    fn clone(&self) -> Self {
        Self {
            local: self.local.clone(),
            line: Arc::clone(&self.line),
        }
    }
}

impl<A: Algorithm, C> fmt::Debug for Remote<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

impl<A: Algorithm> Remote<A, TokioClock> {
    /// Creates a store that uses tokio's time, as its delays do.
    pub fn new() -> Self {
        Self::with_clock(TokioClock::new())
    }
}

impl<A: Algorithm, C: Clock> Remote<A, C> {
    pub fn with_clock(clock: C) -> Self {
        Self {
            local: LocalBuilder::new().capacity(100_000).clock(clock).build(),
            line: Arc::default(),
        }
    }
}

impl<A: Algorithm, C> Remote<A, C> {
    /// Returns the same store over another connection.
    pub fn another_line(&self) -> Self {
        Self {
            local: self.local.clone(),
            line: Arc::default(),
        }
    }

    /// Sets the fault of all later calls.
    pub fn usually(&self, fault: Fault) {
        *self.line.usual.lock().unwrap() = Some(fault);
    }

    /// Sets the faults of the next calls, which precede the usual fault.
    pub fn plan(&self, faults: impl IntoIterator<Item = Fault>) {
        self.line.plan.lock().unwrap().extend(faults);
    }

    pub fn calls(&self) -> Vec<Op> {
        self.line.calls.lock().unwrap().clone()
    }

    pub fn count(&self, op: Op) -> usize {
        self.calls().iter().filter(|call| **call == op).count()
    }

    /// Returns the number of futures that were dropped before their end.
    pub fn dropped(&self) -> u64 {
        self.line.dropped.load(Ordering::SeqCst)
    }

    pub fn running(&self) -> u64 {
        self.line.running.load(Ordering::SeqCst)
    }

    fn begin(&self, op: Op) -> Fault {
        self.line.calls.lock().unwrap().push(op);
        let planned = self.line.plan.lock().unwrap().pop_front();
        planned.unwrap_or_else(|| self.line.usual.lock().unwrap().unwrap_or(Fault::None))
    }

    fn call<T: Send + 'static>(
        &self,
        op: Op,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Check<Later<T>> {
        match self.begin(op) {
            Fault::AtOnce => Check::Ready(Ok(work())),
            Fault::FailsAtOnce(kind) => Check::Ready(Err(kind.error())),
            fault => {
                let running = Running::start(&self.line);
                Check::Pending(Box::pin(async move {
                    let running = running;
                    let result = match fault {
                        Fault::Slow(time) => {
                            tokio::time::sleep(time).await;
                            Ok(work())
                        }
                        Fault::Fails(kind) => Err(kind.error()),
                        Fault::Lossy(kind) => {
                            work();
                            Err(kind.error())
                        }
                        Fault::Silent => pending().await,
                        Fault::Mute => {
                            work();
                            pending().await
                        }
                        _ => Ok(work()),
                    };
                    running.end();
                    result
                }))
            }
        }
    }
}

pub type Later<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// A call in flight.
struct Running {
    line: Arc<Line>,
    has_ended: bool,
}

impl Running {
    fn start(line: &Arc<Line>) -> Self {
        line.running.fetch_add(1, Ordering::SeqCst);
        Self {
            line: Arc::clone(line),
            has_ended: false,
        }
    }

    fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.line.running.fetch_sub(1, Ordering::SeqCst);
        if !self.has_ended {
            self.line.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl<A: Algorithm, C> Backend for Remote<A, C> {
    type Error = StoreError;
}

/// The owned data of an ask.
type Owned<A> = (Policy, A, Key, Cost);

fn own<A: Clone>(asks: &[Ask<'_, A>]) -> Vec<Owned<A>> {
    let own = |ask: &Ask<'_, A>| {
        (
            ask.policy().clone(),
            ask.rule().clone(),
            *ask.key(),
            ask.cost(),
        )
    };
    asks.iter().map(own).collect()
}

fn asks<A>(owned: &[Owned<A>]) -> Vec<Ask<'_, A>> {
    owned
        .iter()
        .map(|(policy, rule, key, cost)| Ask::new(policy, rule, *key, *cost))
        .collect()
}

/// Returns the answer of a store that answers at once.
pub fn at_once<F, T, E: fmt::Debug>(check: Check<F>) -> T
where
    F: Future<Output = Result<T, E>>,
{
    match check {
        Check::Ready(result) => result.unwrap(),
        Check::Pending(_) => panic!("the store does not answer at once"),
    }
}

impl<A, C> Store<A> for Remote<A, C>
where
    A: Algorithm,
    C: Clock + Send + Sync + 'static,
{
    type Answer = Later<Decisions>;
    type Done = Later<()>;

    fn acquire(&self, asked: &[Ask<'_, A>]) -> Check<Self::Answer> {
        let (local, owned) = (self.local.clone(), own(asked));
        self.call(Op::Acquire, move || {
            at_once(Store::acquire(&local, &asks(&owned)))
        })
    }

    fn look(&self, asked: &[Ask<'_, A>]) -> Check<Self::Answer> {
        let (local, owned) = (self.local.clone(), own(asked));
        self.call(Op::Look, move || {
            at_once(Store::look(&local, &asks(&owned)))
        })
    }

    fn settle(&self, settlements: Vec<Settlement<'_, A>>) -> Check<Self::Done> {
        let own = |settlement: Settlement<'_, A>| {
            let (policy, rule) = (settlement.policy().clone(), settlement.rule().clone());
            let (key, actual) = (*settlement.key(), settlement.actual());
            (policy, rule, key, settlement.into_charge(), actual)
        };
        let owned: Vec<_> = settlements.into_iter().map(own).collect();
        let local = self.local.clone();
        self.call(Op::Settle, move || {
            for (policy, rule, key, charge, actual) in owned {
                let settlement = Settlement::new(&policy, &rule, key, charge, actual).unwrap();
                at_once(Store::settle(&local, vec![settlement]));
            }
        })
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let (local, policy, key) = (self.local.clone(), policy.clone(), *key);
        self.call(Op::Reset, move || local.reset(&policy, &key))
    }
}

/// The usual store: a token bucket.
pub type Bucket = Remote<TokenBucket, TokioClock>;

/// A policy and a rule, with helpers for calls.
#[derive(Clone)]
pub struct Asked<R = TokenBucket> {
    pub policy: Policy,
    pub rule: R,
}

impl<R> Asked<R> {
    pub fn of(rule: R) -> Self {
        Self {
            policy: Policy::new("test"),
            rule,
        }
    }

    pub fn ask(&self, key: impl Into<Key>, units: u64) -> Ask<'_, R> {
        let cost = Cost::new(units).unwrap();
        Ask::new(&self.policy, &self.rule, key.into(), cost)
    }

    /// Makes a call with one ask.
    pub async fn acquire<S: Store<R>>(
        &self,
        store: &S,
        key: impl Into<Key>,
        units: u64,
    ) -> Result<Decision, S::Error> {
        let check = store.acquire(&[self.ask(key, units)]);
        Ok(only(check.await?))
    }

    pub async fn look<S: Store<R>>(
        &self,
        store: &S,
        key: impl Into<Key>,
    ) -> Result<Decision, S::Error> {
        let check = store.look(&[self.ask(key, 1)]);
        Ok(only(check.await?))
    }

    /// Makes `count` sequential calls for one unit, and returns the number of admissions.
    pub async fn pass<S>(&self, store: &S, key: impl Into<Key>, count: usize) -> usize
    where
        S: Store<R, Error: fmt::Debug>,
    {
        let key = key.into();
        let mut passed = 0;
        for _ in 0..count {
            let decision = self.acquire(store, key, 1).await.unwrap();
            passed += usize::from(decision.is_admitted());
        }
        passed
    }

    /// Returns the settlement of a decision's charge.
    pub fn settlement(
        &self,
        key: impl Into<Key>,
        decision: &Decision,
        actual: u64,
    ) -> Settlement<'_, R> {
        Settlement::new(
            &self.policy,
            &self.rule,
            key.into(),
            { *decision }.take_charge().unwrap(),
            actual,
        )
        .unwrap()
    }
}

/// Returns the decision about the only ask.
pub fn only(decisions: Decisions) -> Decision {
    let [decision] = decisions.as_slice() else {
        panic!("one decision for one ask: {decisions:?}")
    };
    *decision
}

/// Returns a local store whose clock stands still.
pub fn still<A: Algorithm>() -> (Local<A, ManualClock>, ManualClock) {
    let clock = ManualClock::default();
    let builder = LocalBuilder::new().capacity(10_000).clock(clock.clone());
    (builder.build(), clock)
}

/// Returns a local store in tokio's time.
pub fn local<A: Algorithm>() -> Local<A, TokioClock> {
    let builder = LocalBuilder::new().capacity(10_000);
    builder.clock(TokioClock::new()).build()
}
