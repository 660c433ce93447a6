//! Stops calling a store that keeps failing.

mod circuit;

use std::{
    future::{Future, ready},
    sync::Arc,
    time::Duration,
};

use self::circuit::{CallGuard, CircuitLimits, Circuits};
use crate::{
    algorithm::Algorithm,
    error::or_panic,
    key::Key,
    policy::Policy,
    quota::Written,
    random,
    store::{
        Ask, Backend, Check, Delta, FleetStore, Settlement, Store, StoreError, SyncFuture,
        ThenFuture, delegate, engine::Unsettled,
    },
    time::{Clock, SharedClock, SystemClock},
};

/// A store that is not called for a while after several failures, one after the other.
///
/// Created by [`circuit_breaker`](crate::store::StoreExt::circuit_breaker). Clones share the
/// circuit.
///
/// | state | a call | next state |
/// |---|---|---|
/// | [closed](CircuitState::Closed) | reaches the store | open after a number of [failures](CircuitBreakerConfig::failures), one after the other |
/// | [open](CircuitState::Open) | fails at once with an error that [`is_unavailable`](StoreError::is_unavailable) | half-open after a [pause](CircuitBreakerConfig::open_for) |
/// | [half-open](CircuitState::HalfOpen) | is the one probe, or fails at once | closed if the probe is answered; open for twice as long if it fails |
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{CircuitBreakerConfig, CircuitState, Store, StoreError, StoreExt};
/// use tollgate::store::driver::Ask;
/// # use tollgate::{key::Key, store::{Backend, driver::{Check, Decisions, Never, Settlement}}};
/// # fn down<T>() -> Check<Never<Result<T, StoreError>>> { Check::Ready(Err(StoreError::unavailable("connection refused"))) }
/// # struct Down;
/// # impl Backend for Down { type Error = StoreError; }
/// # impl Store<TokenBucket> for Down {
/// #     type Answer = Never<Result<Decisions, StoreError>>;
/// #     type Done = Never<Result<(), StoreError>>;
/// #     fn acquire(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> { down() }
/// #     fn look(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> { down() }
/// #     fn settle(&self, _: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> { down() }
/// #     fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> { down() }
/// # }
///
/// // `Down` cannot be reached.
/// let store = Down.circuit_breaker(CircuitBreakerConfig::new().failures(3));
/// let (policy, rule) = (Policy::new("api"), TokenBucket::per_second(10));
/// let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
/// for _ in 0..10 {
///     drop(store.acquire(&ask));
/// }
/// assert_eq!(store.state(), CircuitState::Open);
/// assert_eq!((store.opened(), store.rejected()), (1, 7));
/// ```
///
/// # Failures
///
/// Every error counts as a failure, except three kinds:
///
/// - [Contention](StoreError::is_contended) counts as an answer: a store that lost a race works.
/// - So does a [write that the server did not take](StoreError::is_unwritten): it still refuses the
///   clients that are over their limit.
/// - An error of the [call alone](StoreError::is_unsupported) counts as neither, so that no client
///   can open the circuit for others. A probe that ends so is followed by another one.
///
/// Refusals are answers. A failure counts only if its call began after the one before it had
/// failed: however many calls wait for a server that pauses, they are one failure. A result counts
/// only in the state in which its call began. `look`, `settle` and `reset` count as `acquire` does.
///
/// # Deadline
///
/// Put a deadline inside: `.timeout(…).circuit_breaker(…)`. Without it, a store that never answers
/// does not fail. A probe that has no result after the longest length of the next pause, such as
/// one that nobody polls, is followed by another one; the first result of them counts.
///
/// # Shards
///
/// A store whose parts fail independently, such as a cluster, has a circuit per
/// [shard](Backend::shard): a dead shard does not block calls to others. A call with several keys
/// belongs to the shard of the first. Beyond 1024 shards, further ones share the circuit of
/// shard 0.
///
/// # Cancellation
///
/// A dropped call counts as neither an answer nor a failure. A dropped probe is followed by another
/// one.
#[derive(Debug)]
#[doc(alias = "breaker")]
#[must_use]
pub struct CircuitBreaker<S> {
    store: S,
    circuits: Arc<Circuits>,
    /// Settlements that were rejected while the circuit was open.
    unsettled: Unsettled,
}

impl_clone!([S: Clone] CircuitBreaker<S>, { store, circuits, unsettled });

impl<S> CircuitBreaker<S> {
    pub(in crate::store) fn new(store: S, config: CircuitBreakerConfig) -> Self
    where
        S: Backend,
    {
        let circuits = Arc::new(Circuits::new(config, store.address()));
        let unsettled = Unsettled::default();
        Self {
            store,
            circuits,
            unsettled,
        }
    }

    /// Returns the wrapped store, for example to read its counters.
    pub fn get_ref(&self) -> &S {
        &self.store
    }

    /// Returns the number of times that a circuit opened.
    pub fn opened(&self) -> u64 {
        self.circuits.opened()
    }

    /// Returns the number of calls that failed without reaching the store.
    pub fn rejected(&self) -> u64 {
        self.circuits.rejected()
    }

    /// Returns the number of probes.
    pub fn probes(&self) -> u64 {
        self.circuits.probes()
    }

    /// Returns the current state. With several [shards](#shards), this is the worst of their
    /// states: open if calls to any of them are rejected.
    pub fn state(&self) -> CircuitState {
        self.circuits.state()
    }

    /// Returns the shard of a call: that of its first ask.
    fn shard_of<Rule>(&self, asks: &[Ask<'_, Rule>]) -> u32
    where
        S: Backend,
    {
        let first = asks.first();
        first.map_or(0, |ask| self.store.shard(ask.policy(), ask.key()))
    }

    /// Calls the store if the circuit lets the call through, and counts the result.
    fn call<F, T>(
        &self,
        shard: u32,
        call_store: impl FnOnce(&S) -> Check<F>,
    ) -> Check<ThenFuture<F, CallGuard>>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        match self.circuits.enter(shard) {
            Some(call) => call_store(&self.store).then(call),
            None => Check::Ready(Err(StoreError::circuit_open())),
        }
    }
}

/// The state of a circuit breaker.
///
/// Returned by [`CircuitBreaker::state`], whose documentation has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CircuitState {
    /// All calls reach the store.
    Closed,
    /// All calls fail at once.
    Open,
    /// One call, the probe, reaches the store; all others fail at once, until it has taken too
    /// long.
    HalfOpen,
}

/// Settings of a [`CircuitBreaker`]: the failures that open it, and the pauses.
///
/// | setting | default | meaning |
/// |---|---|---|
/// | [`failures`](Self::failures) | 5 | failures, one after the other, that open the circuit |
/// | [`open_for`](Self::open_for) | 1 s, at most 30 s | pause before a probe; doubled after each probe that fails |
/// | [`seed`](Self::seed) | random | seed of the random part of a pause |
/// | [`clock`](Self::clock) | the system's | clock of the pauses |
///
/// Each pause is random, from half its length to all of it: 0.5 to 1 s, then 1 to 2 s, and so on.
/// So the nodes of a fleet, which lost their store at the same time, do not probe at the same time.
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::CircuitBreakerConfig;
///
/// let config = CircuitBreakerConfig::new()
///     .failures(10)
///     .open_for(Duration::from_millis(500), Duration::from_secs(10));
/// # let _ = config;
/// ```
#[derive(Clone)]
#[must_use]
pub struct CircuitBreakerConfig {
    limits: CircuitLimits,
    seed: Option<u64>,
    clock: SharedClock,
}

impl_debug!(
    CircuitBreakerConfig,
    |it| limits = it.limits,
    seed = it.seed
);

impl Default for CircuitBreakerConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl CircuitBreakerConfig {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self {
            limits: CircuitLimits {
                failures: 5,
                first_pause: 1_000_000_000,
                max_pause: 30_000_000_000,
            },
            seed: None,
            clock: Arc::new(SystemClock::default()),
        }
    }

    /// Sets the number of failures that open the circuit: one after the other, without an answer
    /// between them. Behind a [deadline](crate::store::StoreExt::timeout) `d`, a silent server is
    /// noticed after this number of times `d`.
    ///
    /// # Panics
    ///
    /// When [`try_failures`](Self::try_failures) fails; for literals.
    #[track_caller]
    pub fn failures(self, in_a_row: u32) -> Self {
        or_panic(self.try_failures(in_a_row))
    }

    /// Sets the number of failures that open the circuit: one after the other, without an answer
    /// between them. Behind a [deadline](crate::store::StoreExt::timeout) `d`, a silent server is
    /// noticed after this number of times `d`.
    ///
    /// # Errors
    ///
    /// When it is 0.
    pub fn try_failures(mut self, in_a_row: u32) -> Result<Self, crate::Error> {
        if in_a_row == 0 {
            return Err(crate::Error::new(
                "a circuit breaker that opens after 0 failures: expected at least 1; \
                 omit the circuit breaker to always call the store",
            ));
        }
        self.limits.failures = in_a_row;
        Ok(self)
    }

    /// Sets the longest first pause; it doubles after each probe that fails, up to `longest`.
    ///
    /// # Panics
    ///
    /// When [`try_open_for`](Self::try_open_for) fails; for literals.
    #[track_caller]
    pub fn open_for(self, first: Duration, longest: Duration) -> Self {
        or_panic(self.try_open_for(first, longest))
    }

    /// Sets the longest first pause; it doubles after each probe that fails, up to `longest`.
    ///
    /// Both are limited to 2⁶⁴ − 1 ns.
    ///
    /// # Errors
    ///
    /// When `first` is zero, or `longest` is shorter.
    pub fn try_open_for(
        mut self,
        first: Duration,
        longest: Duration,
    ) -> Result<Self, crate::Error> {
        if first.is_zero() || longest < first {
            return Err(crate::Error::new(format!(
                "a circuit breaker that is open for {} first and for {} at most: expected a \
                 time above zero, and a second one that is not shorter; 1 s and 30 s are the defaults",
                Written(first),
                Written(longest)
            )));
        }
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        (self.limits.first_pause, self.limits.max_pause) = (nanos(first), nanos(longest));
        Ok(self)
    }

    /// Sets the seed of the random part of the pauses, for tests that need the same pauses in each
    /// run.
    ///
    /// Nodes of one fleet need different seeds, or they probe at the same time.
    pub fn seed(self, seed: u64) -> Self {
        let seed = Some(seed);
        Self { seed, ..self }
    }

    /// Sets another clock than the system's.
    pub fn clock(mut self, clock: impl Clock + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Returns the settings; a seed that is not set comes from the operating system.
    fn into_parts(self) -> (CircuitLimits, u64, SharedClock) {
        (
            self.limits,
            self.seed.unwrap_or_else(random::seed),
            self.clock,
        )
    }
}

impl<S: Backend<Error = StoreError>> Backend for CircuitBreaker<S> {
    type Error = StoreError;

    delegate!(Backend, self => self.store; identity, refusals);

    /// Includes the settlements that were rejected while the circuit was open.
    fn unsettled(&self) -> Option<u64> {
        let of_store = self.store.unsettled()?;
        Some(of_store + self.unsettled.count())
    }
}

impl<Rule, S> Store<Rule> for CircuitBreaker<S>
where
    S: Store<Rule, Error = StoreError>,
{
    type Answer = ThenFuture<S::Answer, CallGuard>;
    type Done = ThenFuture<S::Done, CallGuard>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.call(self.shard_of(asks), |store| store.acquire(asks))
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        self.call(self.shard_of(asks), |store| store.look(asks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let settling = self.unsettled.settling(settlements.len());
        let first = settlements.first();
        let shard = first.map_or(0, |one| self.store.shard(one.policy, &one.key));
        self.call(shard, move |store| {
            // From here on the wrapped store counts them.
            settling.all_made();
            store.settle(settlements)
        })
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.call(self.store.shard(policy, key), |store| {
            store.reset(policy, key)
        })
    }

    delegate!(Store<Rule>, self => self.store; fits);

    fn fleet(&self) -> Option<&dyn FleetStore<Rule, Error = Self::Error>>
    where
        Rule: Algorithm,
    {
        Some(self)
    }
}

impl<Rule, S> FleetStore<Rule> for CircuitBreaker<S>
where
    Rule: Algorithm,
    S: Store<Rule, Error = StoreError>,
{
    delegate!(FleetStore, self => self.store; count_node);

    fn sync(&self, deltas: &[Delta<'_, Rule>]) -> Option<SyncFuture<Rule, StoreError>> {
        let first = deltas.first();
        let shard = first.map_or(0, |delta| self.store.shard(delta.policy(), delta.key()));
        // Called first: a store without synchronisation is no failure.
        let syncing = self.store.fleet()?.sync(deltas)?;
        Some(match self.call(shard, |_| Check::Pending(syncing)) {
            Check::Ready(result) => Box::pin(ready(result)),
            Check::Pending(syncing) => Box::pin(syncing),
        })
    }
}
