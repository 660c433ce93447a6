//! The circuits of all shards, shared by the clones of a circuit breaker.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    CircuitBreakerConfig, CircuitState,
    circuit::{CallOutcome, Change, Circuit, CircuitLimits, Permit},
};
use crate::{store::Error, time::Clock};

/// Limit of circuits beside that of shard 0. A cluster has up to a thousand masters.
const MAX_SHARDS: usize = 1024;

/// One circuit per shard, and the counters of all.
pub(super) struct Circuits<C> {
    /// The circuit of shard 0; the only one of a store without shards.
    first: SharedCircuit,
    /// The circuits of other shards that were called.
    others: RwLock<HashMap<u32, Arc<SharedCircuit>>>,
    limits: CircuitLimits,
    seed: u64,
    clock: C,
    #[cfg(feature = "tracing")]
    address: Option<Box<str>>,
    opened: AtomicU64,
    rejected: AtomicU64,
    probes: AtomicU64,
}

/// A circuit behind a lock that calls need only while the store fails.
struct SharedCircuit {
    circuit: Mutex<Circuit>,
    /// A copy of [`Circuit::packed`]: while the circuit is closed and nothing failed, no call needs the lock.
    packed: AtomicU64,
    #[cfg(feature = "tracing")]
    log: super::log::CircuitLog,
}

impl SharedCircuit {
    fn new(limits: CircuitLimits, seed: u64) -> Self {
        let circuit = Circuit::new(limits, seed);
        Self {
            packed: AtomicU64::new(circuit.packed()),
            circuit: Mutex::new(circuit),
            #[cfg(feature = "tracing")]
            log: super::log::CircuitLog::default(),
        }
    }

    /// Locks the circuit, for a few instructions and never across an `.await`.
    fn lock(&self) -> MutexGuard<'_, Circuit> {
        // No change can panic half-way.
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn leave(&self, permit: Permit, outcome: CallOutcome) -> Change {
        let has_failed = matches!(outcome, CallOutcome::Failed(_));
        if !has_failed && self.packed.load(Ordering::Acquire) == permit.epoch << 1 | 1 {
            return Change::None;
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

impl<C> fmt::Debug for Circuits<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Circuits")
            .field("opened", &self.opened())
            .field("rejected", &self.rejected())
            .field("probes", &self.probes())
            .finish_non_exhaustive()
    }
}

impl<C> Circuits<C> {
    pub(super) fn new(config: CircuitBreakerConfig<C>, address: Option<&str>) -> Self {
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
            opened: AtomicU64::default(),
            rejected: AtomicU64::default(),
            probes: AtomicU64::default(),
        }
    }

    // Relaxed throughout: the counts are for reports and order nothing.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    pub(super) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    pub(super) fn probes(&self) -> u64 {
        self.probes.load(Ordering::Relaxed)
    }

    /// Returns the worst state of all shards.
    pub(super) fn state(&self) -> CircuitState
    where
        C: Clock,
    {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
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

    /// Returns the circuit of a shard, which is created if necessary; `None` if it is that of shard 0.
    fn other(&self, shard: u32) -> Option<Arc<SharedCircuit>> {
        if shard == 0 {
            return None;
        }
        {
            let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(circuit) = others.get(&shard) {
                return Some(Arc::clone(circuit));
            }
        }
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
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
    pub(super) fn enter(self: &Arc<Self>, shard: u32) -> Option<CallGuard<C>>
    where
        C: Clock,
    {
        let other = self.other(shard);
        let circuit = other.as_deref().unwrap_or(&self.first);
        let Some(permit) = circuit.enter(&self.clock) else {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.probes
            .fetch_add(u64::from(permit.is_probe), Ordering::Relaxed);
        Some(CallGuard {
            circuits: Arc::clone(self),
            other,
            permit: Some(permit),
        })
    }
}

/// A call in flight. When it is dropped before its result is known, a probe is followed by another one.
pub(super) struct CallGuard<C> {
    circuits: Arc<Circuits<C>>,
    /// The circuit of the call, unless it is that of shard 0.
    other: Option<Arc<SharedCircuit>>,
    permit: Option<Permit>,
}

impl<C: Clock> CallGuard<C> {
    /// Records the result of the call.
    pub(super) fn record<T>(&mut self, result: &Result<T, Error>) {
        let Some(permit) = self.permit.take() else {
            return;
        };
        let outcome = match result {
            Err(error) if error.is_unsupported() => CallOutcome::Unknown,
            Err(error) if !error.is_contended() && !error.is_unwritten() => {
                CallOutcome::Failed(self.circuits.clock.now())
            }
            _ => CallOutcome::Answered,
        };
        self.leave(permit, outcome);
    }
}

impl<C> CallGuard<C> {
    fn leave(&self, permit: Permit, outcome: CallOutcome) {
        let circuit = self.other.as_deref().unwrap_or(&self.circuits.first);
        let change = circuit.leave(permit, outcome);
        if matches!(change, Change::Opened | Change::Reopened) {
            self.circuits.opened.fetch_add(1, Ordering::Relaxed);
        }
        #[cfg(feature = "tracing")]
        circuit
            .log
            .log(change, outcome, self.circuits.address.as_deref());
    }
}

impl<C> Drop for CallGuard<C> {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.leave(permit, CallOutcome::Unknown);
        }
    }
}

/// The cause of an error of a call that did not reach the store.
#[derive(Debug)]
pub(super) struct CircuitOpen;

impl fmt::Display for CircuitOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its circuit breaker is open after several failures in a row; calls resume after a pause, see the log for the failures")
    }
}

impl std::error::Error for CircuitOpen {}
