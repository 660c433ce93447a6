//! What all clones of a store behind a circuit breaker share.

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
    gate::{Fate, Gate, Limits, Ticket},
};
use crate::{store::Error, time::Clock};

/// Shards with a gate of their own, beside the first one, at most. A cluster has up to a thousand masters.
const SHARDS: usize = 1024;

pub(super) struct Breaker<C> {
    /// That of shard 0: of the whole store, where it has no shards.
    first: SharedGate,
    /// By shard; those that were asked.
    others: RwLock<HashMap<u32, Arc<SharedGate>>>,
    limits: Limits,
    seed: u64,
    clock: C,
    opened: AtomicU64,
    rejected: AtomicU64,
    probes: AtomicU64,
}

struct SharedGate {
    gate: Mutex<Gate>,
    /// What the gate [shows](Gate::shown): while it is calm, no call needs the lock.
    shown: AtomicU64,
}

impl SharedGate {
    fn new(limits: Limits, seed: u64) -> Self {
        let gate = Gate::new(limits, seed);
        Self {
            shown: AtomicU64::new(gate.shown()),
            gate: Mutex::new(gate),
        }
    }

    /// Held for some instructions, never while something is awaited.
    fn lock(&self) -> MutexGuard<'_, Gate> {
        // Nothing that is done under it can panic half-way.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Gate) -> T) -> T {
        let mut gate = self.lock();
        let result = change(&mut gate);
        self.shown.store(gate.shown(), Ordering::Release);
        result
    }

    /// A ticket for a call, if it may pass.
    fn enter(&self, clock: &impl Clock) -> Option<Ticket> {
        // What another thread has just changed may be seen late, as if this call had come sooner.
        let shown = self.shown.load(Ordering::Acquire);
        if shown & 1 == 1 {
            return Some(Ticket {
                epoch: shown >> 1,
                is_probe: false,
            });
        }
        let now = clock.now();
        self.change(|gate| gate.enter(now))
    }

    /// Learns what became of a call; tells whether that opened the gate.
    fn leave(&self, ticket: Ticket, fate: Fate) -> bool {
        let has_failed = matches!(fate, Fate::Failed(_));
        if !has_failed && self.shown.load(Ordering::Acquire) == ticket.epoch << 1 | 1 {
            return false;
        }
        self.change(|gate| gate.leave(ticket, fate))
    }

    fn state(&self, clock: &impl Clock) -> CircuitState {
        let now = clock.now();
        let gate = self.lock();
        if gate.is_closed() {
            CircuitState::Closed
        } else if gate.is_open(now) {
            CircuitState::Open
        } else {
            CircuitState::HalfOpen
        }
    }
}

impl<C> fmt::Debug for Breaker<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("opened", &self.opened())
            .field("rejected", &self.rejected())
            .field("probes", &self.probes())
            .finish_non_exhaustive()
    }
}

impl<C> Breaker<C> {
    pub(super) fn new(settings: CircuitBreakerConfig<C>) -> Self {
        let (limits, seed, clock) = settings.into_parts();
        Self {
            first: SharedGate::new(limits, seed),
            others: RwLock::default(),
            limits,
            seed,
            clock,
            opened: AtomicU64::default(),
            rejected: AtomicU64::default(),
            probes: AtomicU64::default(),
        }
    }

    // Relaxed throughout: counts are read for a report and order nothing.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    pub(super) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    pub(super) fn probes(&self) -> u64 {
        self.probes.load(Ordering::Relaxed)
    }

    /// That of the shard which is worst off.
    pub(super) fn state(&self) -> CircuitState
    where
        C: Clock,
    {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        let gates = others.values().map(|gate| &**gate);
        let states = gates
            .chain([&self.first])
            .map(|gate| gate.state(&self.clock));
        let severity = |state: &CircuitState| match state {
            CircuitState::Closed => 0,
            CircuitState::HalfOpen => 1,
            CircuitState::Open => 2,
        };
        states.max_by_key(severity).unwrap_or(CircuitState::Closed)
    }

    /// The gate of a shard other than the first; `None` is the first one's.
    fn other(&self, shard: u32) -> Option<Arc<SharedGate>> {
        if shard == 0 {
            return None;
        }
        {
            let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(gate) = others.get(&shard) {
                return Some(Arc::clone(gate));
            }
        }
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        if others.len() >= SHARDS && !others.contains_key(&shard) {
            return None;
        }
        let made = || Arc::new(SharedGate::new(self.limits, self.seed ^ u64::from(shard)));
        Some(Arc::clone(others.entry(shard).or_insert_with(made)))
    }

    /// Lets a call to a shard in, if it may pass.
    pub(super) fn enter(self: &Arc<Self>, shard: u32) -> Option<Call<C>>
    where
        C: Clock,
    {
        let other = self.other(shard);
        let gate = other.as_deref().unwrap_or(&self.first);
        let Some(ticket) = gate.enter(&self.clock) else {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.probes
            .fetch_add(u64::from(ticket.is_probe), Ordering::Relaxed);
        Some(Call {
            breaker: Arc::clone(self),
            other,
            ticket: Some(ticket),
        })
    }
}

/// A call that is under way. Dropped before its end is known, it gives its place to the next one.
pub(super) struct Call<C> {
    breaker: Arc<Breaker<C>>,
    /// The gate that it came through, unless that was the first one.
    other: Option<Arc<SharedGate>>,
    ticket: Option<Ticket>,
}

impl<C: Clock> Call<C> {
    /// What the store said to it.
    pub(super) fn ended<T>(&mut self, result: &Result<T, Error>) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        let fate = match result {
            Err(error) if error.is_unsupported() => Fate::Unknown,
            Err(error) if !error.is_contended() => Fate::Failed(self.breaker.clock.now()),
            _ => Fate::Answered,
        };
        self.leave(ticket, fate);
    }
}

impl<C> Call<C> {
    fn leave(&self, ticket: Ticket, fate: Fate) {
        let gate = self.other.as_deref().unwrap_or(&self.breaker.first);
        let opened = gate.leave(ticket, fate);
        self.breaker
            .opened
            .fetch_add(u64::from(opened), Ordering::Relaxed);
    }
}

impl<C> Drop for Call<C> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.leave(ticket, Fate::Unknown);
        }
    }
}

/// Why the store was not asked.
#[derive(Debug)]
pub(super) struct IsOpen;

impl fmt::Display for IsOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its circuit breaker is open, because it failed too often in a row; it is asked again after a pause: see why it failed")
    }
}

impl std::error::Error for IsOpen {}
