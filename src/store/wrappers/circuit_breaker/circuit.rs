//! The circuits of a circuit breaker: the state machine of one circuit, which reads no clock, and
//! the shared circuits of all shards.
//!
//! There is a circuit for each shard (`Backend::shard`), because an error does not show which node
//! failed. A shard is named by the lowest of its slots, which stays when a replica takes over.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{CircuitBreakerConfig, CircuitState};
#[cfg(feature = "tracing")]
use crate::log::OnceAMinute;
use crate::{
    locks::{self, lock},
    random::Random,
    stats::Counter,
    store::{StoreError, Then},
    time::{Clock, SharedClock, Timestamp},
};

/// Settings of a circuit.
#[derive(Clone, Copy, Debug)]
pub(super) struct CircuitLimits {
    /// Failures, one after the other, that open the circuit; at least 1.
    pub(super) failures: u32,
    /// Longest first pause in nanoseconds.
    pub(super) first_pause: u64,
    /// Longest pause of all in nanoseconds; at least `first_pause`.
    pub(super) max_pause: u64,
}

/// One circuit: closed, open or half-open.
struct Circuit {
    limits: CircuitLimits,
    phase: CircuitPhase,
    /// Number of changes of the phase, and of answers after failures. A result counts only in the
    /// epoch in which its call began.
    epoch: u64,
    /// Longest next pause in nanoseconds.
    next_pause: u64,
    random: Random,
}

#[derive(Clone, Copy)]
enum CircuitPhase {
    Closed {
        failures: u32,
    },
    Open(Pause),
    /// Other calls fail for a while after a probe began. Then one of them is a probe, too: the
    /// former one may be a future that nobody polls.
    HalfOpen(Pause),
}

/// A time in which calls fail.
#[derive(Clone, Copy)]
struct Pause {
    since: Timestamp,
    until: Timestamp,
}

impl Pause {
    fn new(since: Timestamp, nanos: u64) -> Self {
        let until = Timestamp::from_nanos(since.as_nanos().saturating_add(nanos));
        Self { since, until }
    }

    /// Returns `true` during the pause. A clock that stepped back to before it does not prolong it.
    fn contains(self, now: Timestamp) -> bool {
        self.since <= now && now < self.until
    }
}

/// The right of one call to reach the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Permit {
    epoch: u64,
    is_probe: bool,
    /// The failures in a row when the call began.
    failures: u32,
}

/// The result of a call, as far as it matters to the circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallOutcome {
    Answered,
    Failed(Timestamp),
    /// Neither an answer nor a failure: the call was dropped, or failed by itself.
    Unknown,
}

/// The change of a circuit by the outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CircuitChange {
    None,
    /// After several failures in a row.
    Opened,
    /// After a probe that failed.
    Reopened,
    Closed,
}

impl Circuit {
    fn new(limits: CircuitLimits, seed: u64) -> Self {
        Self {
            limits,
            phase: CircuitPhase::Closed { failures: 0 },
            epoch: 0,
            next_pause: limits.first_pause,
            random: Random::new(seed),
        }
    }

    /// Returns the epoch, shifted left by one bit. The lowest bit is 1 if calls pass and answers
    /// change nothing.
    fn packed(&self) -> u64 {
        let is_calm = matches!(self.phase, CircuitPhase::Closed { failures: 0 });
        self.epoch << 1 | u64::from(is_calm)
    }

    /// Returns a permit for a call at `now`, unless it must fail.
    fn enter(&mut self, now: Timestamp) -> Option<Permit> {
        let (is_probe, failures) = match self.phase {
            CircuitPhase::Closed { failures } => (false, failures),
            CircuitPhase::Open(pause) | CircuitPhase::HalfOpen(pause) if pause.contains(now) => {
                return None;
            }
            CircuitPhase::Open(_) => {
                self.change(CircuitPhase::HalfOpen(Pause::new(now, self.next_pause)));
                (true, 0)
            }
            CircuitPhase::HalfOpen(_) => {
                self.phase = CircuitPhase::HalfOpen(Pause::new(now, self.next_pause));
                (true, 0)
            }
        };
        Some(Permit {
            epoch: self.epoch,
            is_probe,
            failures,
        })
    }

    /// Returns `true` if all calls fail at `now`, and no probe is in flight.
    fn is_open(&self, now: Timestamp) -> bool {
        matches!(self.phase, CircuitPhase::Open(pause) if pause.contains(now))
    }

    fn is_closed(&self) -> bool {
        matches!(self.phase, CircuitPhase::Closed { .. })
    }

    /// Records the outcome of a call.
    fn leave(&mut self, permit: Permit, outcome: CallOutcome) -> CircuitChange {
        if permit.epoch != self.epoch {
            return CircuitChange::None;
        }
        match (&mut self.phase, outcome) {
            (CircuitPhase::Closed { failures: 0 }, CallOutcome::Answered) => {}
            // A new epoch: calls that began before this answer do not count if they fail.
            (CircuitPhase::Closed { .. }, CallOutcome::Answered) => {
                self.change(CircuitPhase::Closed { failures: 0 });
            }
            // Calls that waited together for one pause of the server are one failure.
            (CircuitPhase::Closed { failures }, CallOutcome::Failed(_))
                if *failures != permit.failures => {}
            (CircuitPhase::Closed { failures }, CallOutcome::Failed(now)) => {
                *failures += 1;
                if *failures >= self.limits.failures {
                    self.open(now);
                    return CircuitChange::Opened;
                }
            }
            (CircuitPhase::HalfOpen(_), CallOutcome::Answered) => {
                self.next_pause = self.limits.first_pause;
                self.change(CircuitPhase::Closed { failures: 0 });
                return CircuitChange::Closed;
            }
            (CircuitPhase::HalfOpen(_), CallOutcome::Failed(now)) => {
                self.open(now);
                return CircuitChange::Reopened;
            }
            (CircuitPhase::HalfOpen(pause), CallOutcome::Unknown) => pause.until = pause.since,
            (CircuitPhase::Closed { .. }, CallOutcome::Unknown) | (CircuitPhase::Open(_), _) => {}
        }
        CircuitChange::None
    }

    fn open(&mut self, now: Timestamp) {
        let wait = self.draw(self.next_pause);
        self.next_pause = self.next_pause.saturating_mul(2).min(self.limits.max_pause);
        self.change(CircuitPhase::Open(Pause::new(now, wait)));
    }

    fn change(&mut self, phase: CircuitPhase) {
        self.phase = phase;
        self.epoch += 1;
    }

    /// Returns a random number from the upper half of `most`, uniformly distributed.
    fn draw(&mut self, most: u64) -> u64 {
        let half = most / 2;
        half + self.random.up_to(most - half)
    }
}

/// Limit of circuits in addition to that of shard 0. A cluster has up to a thousand masters.
const MAX_SHARDS: usize = 1024;

/// One circuit per shard, and the counters of all.
pub(super) struct Circuits {
    /// The circuit of shard 0; the only one of a store without shards.
    first: SharedCircuit,
    /// The circuits of other shards that were called.
    others: RwLock<HashMap<u32, Arc<SharedCircuit>>>,
    limits: CircuitLimits,
    seed: u64,
    clock: SharedClock,
    #[cfg(feature = "tracing")]
    address: Option<Box<str>>,
    opened: Counter,
    rejected: Counter,
    probes: Counter,
}

/// A circuit behind a lock that calls need only while the store fails.
struct SharedCircuit {
    circuit: Mutex<Circuit>,
    /// A copy of [`Circuit::packed`]: while the circuit is closed and nothing failed, no call needs
    /// the lock.
    packed: AtomicU64,
    #[cfg(feature = "tracing")]
    log: CircuitLog,
}

impl SharedCircuit {
    fn new(limits: CircuitLimits, seed: u64) -> Self {
        let circuit = Circuit::new(limits, seed);
        Self {
            packed: AtomicU64::new(circuit.packed()),
            circuit: Mutex::new(circuit),
            #[cfg(feature = "tracing")]
            log: CircuitLog::default(),
        }
    }

    /// Locks the circuit, for a few instructions and never across an `.await`.
    fn lock(&self) -> MutexGuard<'_, Circuit> {
        // No change can panic half-way.
        lock(&self.circuit)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Circuit) -> T) -> T {
        let mut circuit = self.lock();
        let result = change(&mut circuit);
        self.packed.store(circuit.packed(), Ordering::Release);
        result
    }

    /// Returns a permit for a call, unless it must fail.
    fn enter(&self, clock: &impl Clock) -> Option<Permit> {
        // A change of another thread may be seen late, as if this call had come sooner.
        let packed = self.packed.load(Ordering::Acquire);
        if packed & 1 == 1 {
            return Some(Permit {
                epoch: packed >> 1,
                is_probe: false,
                failures: 0,
            });
        }
        let now = clock.now();
        self.change(|circuit| circuit.enter(now))
    }

    /// Records the outcome of a call.
    fn leave(&self, permit: Permit, outcome: CallOutcome) -> CircuitChange {
        let has_failed = matches!(outcome, CallOutcome::Failed(_));
        if !has_failed && self.packed.load(Ordering::Acquire) == permit.epoch << 1 | 1 {
            return CircuitChange::None;
        }
        self.change(|circuit| circuit.leave(permit, outcome))
    }

    fn state(&self, clock: &impl Clock) -> CircuitState {
        let now = clock.now();
        let circuit = self.lock();
        if circuit.is_closed() {
            CircuitState::Closed
        } else if circuit.is_open(now) {
            CircuitState::Open
        } else {
            CircuitState::HalfOpen
        }
    }
}

impl_debug!(
    Circuits,
    |it| opened = it.opened(),
    rejected = it.rejected(),
    probes = it.probes()
);

impl Circuits {
    pub(super) fn new(config: CircuitBreakerConfig, address: Option<&str>) -> Self {
        #[cfg(not(feature = "tracing"))]
        let _ = address;
        let (limits, seed, clock) = config.into_parts();
        Self {
            first: SharedCircuit::new(limits, seed),
            others: RwLock::default(),
            limits,
            seed,
            clock,
            #[cfg(feature = "tracing")]
            address: address.map(Into::into),
            opened: Counter::default(),
            rejected: Counter::default(),
            probes: Counter::default(),
        }
    }

    pub(super) fn opened(&self) -> u64 {
        self.opened.get()
    }

    pub(super) fn rejected(&self) -> u64 {
        self.rejected.get()
    }

    pub(super) fn probes(&self) -> u64 {
        self.probes.get()
    }

    /// Returns the worst state of all shards.
    pub(super) fn state(&self) -> CircuitState {
        let others = locks::read(&self.others);
        let circuits = others.values().map(|circuit| &**circuit);
        let states = circuits
            .chain([&self.first])
            .map(|circuit| circuit.state(&self.clock));
        let severity = |state: &CircuitState| match state {
            CircuitState::Closed => 0,
            CircuitState::HalfOpen => 1,
            CircuitState::Open => 2,
        };
        states.max_by_key(severity).unwrap_or(CircuitState::Closed)
    }

    /// Returns the circuit of a shard, which is created if necessary; `None` if it is that of
    /// shard 0.
    fn other(&self, shard: u32) -> Option<Arc<SharedCircuit>> {
        if shard == 0 {
            return None;
        }
        {
            let others = locks::read(&self.others);
            if let Some(circuit) = others.get(&shard) {
                return Some(Arc::clone(circuit));
            }
        }
        let mut others = locks::write(&self.others);
        if others.len() >= MAX_SHARDS && !others.contains_key(&shard) {
            return None;
        }
        let create = || {
            Arc::new(SharedCircuit::new(
                self.limits,
                self.seed ^ u64::from(shard),
            ))
        };
        Some(Arc::clone(others.entry(shard).or_insert_with(create)))
    }

    /// Returns a guard for a call to a shard, unless it must fail.
    pub(super) fn enter(self: &Arc<Self>, shard: u32) -> Option<CallGuard> {
        let other = self.other(shard);
        let circuit = other.as_deref().unwrap_or(&self.first);
        let Some(permit) = circuit.enter(&self.clock) else {
            self.rejected.add(1);
            return None;
        };
        self.probes.add(u64::from(permit.is_probe));
        Some(CallGuard {
            circuits: Arc::clone(self),
            other,
            permit: Some(permit),
        })
    }
}

/// A call in flight. When it is dropped before its result is known, a probe is followed by another
/// one.
pub struct CallGuard {
    circuits: Arc<Circuits>,
    /// The circuit of the call, unless it is that of shard 0.
    other: Option<Arc<SharedCircuit>>,
    permit: Option<Permit>,
}

impl_debug!(CallGuard);

impl<T> Then<Result<T, StoreError>> for CallGuard {
    type Output = Result<T, StoreError>;

    /// Records the result of the call.
    fn then(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        let outcome = match &result {
            Err(error) if error.is_unsupported() => CallOutcome::Unknown,
            Err(error) if !error.is_contended() && !error.is_unwritten() => {
                CallOutcome::Failed(self.circuits.clock.now())
            }
            _ => CallOutcome::Answered,
        };
        self.leave(outcome);
        result
    }
}

impl CallGuard {
    fn leave(&mut self, outcome: CallOutcome) {
        let Some(permit) = self.permit.take() else {
            return;
        };
        let circuit = self.other.as_deref().unwrap_or(&self.circuits.first);
        let change = circuit.leave(permit, outcome);
        if matches!(change, CircuitChange::Opened | CircuitChange::Reopened) {
            self.circuits.opened.add(1);
        }
        #[cfg(feature = "tracing")]
        circuit
            .log
            .log(change, outcome, self.circuits.address.as_deref());
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.leave(CallOutcome::Unknown);
    }
}

/// The log of one circuit.
#[cfg(feature = "tracing")]
#[derive(Debug, Default)]
struct CircuitLog(Mutex<CircuitLines>);

#[cfg(feature = "tracing")]
#[derive(Debug, Default)]
struct CircuitLines {
    /// Bounds the openings, first or repeated. A closing is logged if the last line is an opening.
    openings: OnceAMinute,
    /// `true` if the last line is an opening.
    is_open: bool,
}

#[cfg(feature = "tracing")]
impl CircuitLines {
    /// Returns `true` if a change is logged.
    fn record(&mut self, change: CircuitChange, outcome: CallOutcome) -> bool {
        match (change, outcome) {
            (CircuitChange::Opened | CircuitChange::Reopened, CallOutcome::Failed(now))
                if self.openings.record(now).is_some() =>
            {
                self.is_open = true;
                true
            }
            (CircuitChange::Closed, _) => std::mem::take(&mut self.is_open),
            _ => false,
        }
    }
}

#[cfg(feature = "tracing")]
impl CircuitLog {
    #[inline]
    fn log(&self, change: CircuitChange, outcome: CallOutcome, address: Option<&str>) {
        if !matches!(change, CircuitChange::None) {
            self.log_change(change, outcome, address);
        }
    }

    #[cold]
    fn log_change(&self, change: CircuitChange, outcome: CallOutcome, address: Option<&str>) {
        let mut lines = lock(&self.0);
        let is_logged = lines.record(change, outcome);
        // A subscriber may be slow.
        drop(lines);
        if !is_logged {
            return;
        }
        if change == CircuitChange::Closed {
            tracing::warn!(
                address,
                "the circuit breaker of the rate limit store is closed: a probe was answered, so calls reach the store"
            );
        } else {
            tracing::error!(
                address,
                "the circuit breaker of the rate limit store is open after several failures in a row: calls fail at once until a probe is \
                 answered (logged once a minute for each shard)"
            );
        }
    }
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use super::*;

    #[test]
    fn openings_are_logged_once_a_minute_and_closings_with_them() {
        let mut lines = CircuitLines::default();
        let failed = |second: u64| {
            CallOutcome::Failed(Timestamp::from_nanos((100 + second) * 1_000_000_000))
        };
        for (change, outcome, is_logged) in [
            (CircuitChange::Closed, CallOutcome::Answered, false),
            (CircuitChange::Opened, failed(0), true),
            (CircuitChange::Reopened, failed(1), false),
            (CircuitChange::Closed, CallOutcome::Answered, true),
            (CircuitChange::Opened, failed(59), false),
            (CircuitChange::Closed, CallOutcome::Answered, false),
            // A probe that failed: the last line would be wrong for as long as the store is down.
            (CircuitChange::Reopened, failed(60), true),
            // A clock that steps back brings no line sooner.
            (CircuitChange::Opened, failed(0), false),
            (CircuitChange::Closed, CallOutcome::Answered, true),
            (CircuitChange::Closed, CallOutcome::Answered, false),
        ] {
            assert_eq!(
                lines.record(change, outcome),
                is_logged,
                "{change:?} {outcome:?}"
            );
        }
    }
}
