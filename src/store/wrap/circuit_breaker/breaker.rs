//! What all clones of a store behind a circuit breaker share.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    CircuitBreaker, CircuitState,
    gate::{Fate, Gate, Ticket},
};
use crate::{clock::Clock, store::Error};

pub(super) struct Breaker<C> {
    gate: Mutex<Gate>,
    /// What the gate [shows](Gate::shown): while it is calm, no call needs the lock.
    shown: AtomicU64,
    clock: C,
    opened: AtomicU64,
    rejected: AtomicU64,
    probes: AtomicU64,
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
    pub(super) fn new(settings: CircuitBreaker<C>) -> Self {
        let (limits, seed, clock) = settings.into_parts();
        let gate = Gate::new(limits, seed);
        Self {
            shown: AtomicU64::new(gate.shown()),
            gate: Mutex::new(gate),
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

    pub(super) fn state(&self) -> CircuitState
    where
        C: Clock,
    {
        let now = self.clock.now();
        let gate = self.lock();
        if gate.is_closed() {
            CircuitState::Closed
        } else if gate.is_open(now) {
            CircuitState::Open
        } else {
            CircuitState::HalfOpen
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

    /// Lets a call in, if it may pass.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Call<C>>
    where
        C: Clock,
    {
        // What another thread has just changed may be seen late, as if this call had come sooner.
        let shown = self.shown.load(Ordering::Acquire);
        let ticket = if shown & 1 == 1 {
            Some(Ticket {
                epoch: shown >> 1,
                is_probe: false,
            })
        } else {
            let now = self.clock.now();
            self.change(|gate| gate.enter(now))
        };
        let Some(ticket) = ticket else {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.probes
            .fetch_add(u64::from(ticket.is_probe), Ordering::Relaxed);
        Some(Call {
            breaker: Arc::clone(self),
            ticket: Some(ticket),
        })
    }

    fn leave(&self, ticket: Ticket, fate: Fate) {
        let has_failed = matches!(fate, Fate::Failed(_));
        if !has_failed && self.shown.load(Ordering::Acquire) == ticket.epoch << 1 | 1 {
            return;
        }
        let opened = self.change(|gate| gate.leave(ticket, fate));
        self.opened.fetch_add(u64::from(opened), Ordering::Relaxed);
    }
}

/// A call that is under way. Dropped before its end is known, it gives its place to the next one.
pub(super) struct Call<C> {
    breaker: Arc<Breaker<C>>,
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
        self.breaker.leave(ticket, fate);
    }
}

impl<C> Drop for Call<C> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.breaker.leave(ticket, Fate::Unknown);
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
