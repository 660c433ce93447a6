//! The state machine of a circuit breaker. It reads no clock, and its random numbers come from a seed.

use crate::{random::Random, time::Timestamp};

/// The settings of a circuit.
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
pub(super) struct Circuit {
    limits: CircuitLimits,
    phase: Phase,
    /// Number of changes of the phase, and of answers after failures. A result counts only in the epoch in which its call began.
    epoch: u64,
    /// Longest next pause in nanoseconds.
    next_pause: u64,
    random: Random,
}

#[derive(Clone, Copy)]
enum Phase {
    Closed { failures: u32 },
    Open { since: Timestamp, until: Timestamp },
    HalfOpen { probing: bool },
}

/// The right of one call to reach the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permit {
    pub(super) epoch: u64,
    pub(super) is_probe: bool,
    /// The failures in a row when the call began.
    pub(super) failures: u32,
}

/// The result of a call, as far as it matters to the circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallOutcome {
    Answered,
    Failed(Timestamp),
    /// Dropped, or an error of the call alone: neither an answer nor a failure.
    Unknown,
}

/// What the outcome of a call changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// After several failures in a row.
    Opened,
    /// After a probe that failed.
    Reopened,
    Closed,
}

impl Circuit {
    pub(super) fn new(limits: CircuitLimits, seed: u64) -> Self {
        Self {
            limits,
            phase: Phase::Closed { failures: 0 },
            epoch: 0,
            next_pause: limits.first_pause,
            random: Random::new(seed),
        }
    }

    /// Returns the epoch, shifted left by one bit, and in the lowest bit 1 if calls pass and answers change nothing.
    pub(super) fn packed(&self) -> u64 {
        let is_calm = matches!(self.phase, Phase::Closed { failures: 0 });
        self.epoch << 1 | u64::from(is_calm)
    }

    /// Returns a permit for a call at `now`, unless it must fail.
    pub(super) fn enter(&mut self, now: Timestamp) -> Option<Permit> {
        let (is_probe, failures) = match self.phase {
            Phase::Closed { failures } => (false, failures),
            Phase::Open { .. } if self.is_open(now) => return None,
            Phase::HalfOpen { probing: true } => return None,
            Phase::Open { .. } => {
                self.change(Phase::HalfOpen { probing: true });
                (true, 0)
            }
            Phase::HalfOpen { probing: false } => {
                self.phase = Phase::HalfOpen { probing: true };
                (true, 0)
            }
        };
        Some(Permit {
            epoch: self.epoch,
            is_probe,
            failures,
        })
    }

    /// Returns `true` if all calls fail at `now`. A clock that stepped back to before the opening does not prolong the pause.
    pub(super) fn is_open(&self, now: Timestamp) -> bool {
        match self.phase {
            Phase::Open { since, until } => since <= now && now < until,
            Phase::Closed { .. } | Phase::HalfOpen { .. } => false,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed { .. })
    }

    /// Records the outcome of a call.
    pub(super) fn leave(&mut self, permit: Permit, outcome: CallOutcome) -> Change {
        if permit.epoch != self.epoch {
            return Change::None;
        }
        match (&mut self.phase, outcome) {
            (Phase::Closed { failures: 0 }, CallOutcome::Answered) => {}
            // Failures of calls that began before this answer say no more than it does.
            (Phase::Closed { .. }, CallOutcome::Answered) => {
                self.change(Phase::Closed { failures: 0 });
            }
            // Calls that waited together for one pause of the server are one failure.
            (Phase::Closed { failures }, CallOutcome::Failed(_))
                if *failures != permit.failures => {}
            (Phase::Closed { failures }, CallOutcome::Failed(now)) => {
                *failures += 1;
                if *failures >= self.limits.failures {
                    self.open(now);
                    return Change::Opened;
                }
            }
            (Phase::HalfOpen { .. }, CallOutcome::Answered) => {
                self.next_pause = self.limits.first_pause;
                self.change(Phase::Closed { failures: 0 });
                return Change::Closed;
            }
            (Phase::HalfOpen { .. }, CallOutcome::Failed(now)) => {
                self.open(now);
                return Change::Reopened;
            }
            (Phase::HalfOpen { probing }, CallOutcome::Unknown) => *probing = false,
            (Phase::Closed { .. }, CallOutcome::Unknown) | (Phase::Open { .. }, _) => {}
        }
        Change::None
    }

    fn open(&mut self, now: Timestamp) {
        let wait = self.draw(self.next_pause);
        self.next_pause = self.next_pause.saturating_mul(2).min(self.limits.max_pause);
        self.change(Phase::Open {
            since: now,
            until: Timestamp::from_nanos(now.as_nanos().saturating_add(wait)),
        });
    }

    fn change(&mut self, phase: Phase) {
        self.phase = phase;
        self.epoch += 1;
    }

    /// Returns a random number from the upper half of `most`, uniformly distributed.
    fn draw(&mut self, most: u64) -> u64 {
        let half = most / 2;
        half + self.random.up_to(most - half)
    }
}
