//! When calls pass, by what became of those before. Reads no clock, and draws by a seed: pure.

use crate::{random::Random, time::Timestamp};

/// What a gate goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// As many failures in a row open it; above zero.
    pub(super) failures: u32,
    /// Nanoseconds it is open at most, the first time.
    pub(super) first: u64,
    /// And any time; not below `first`.
    pub(super) longest: u64,
}

/// The state of a circuit breaker.
pub(super) struct Gate {
    limits: Limits,
    phase: Phase,
    /// How often the phase has changed: a result matters only in the phase that its call began in.
    epoch: u64,
    /// Nanoseconds it is open at most, the next time.
    period: u64,
    random: Random,
}

#[derive(Clone, Copy)]
enum Phase {
    Closed { failures: u32 },
    Open { since: Timestamp, until: Timestamp },
    HalfOpen { probing: bool },
}

/// What a call came in with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) epoch: u64,
    pub(super) is_probe: bool,
}

/// What a call became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Answered,
    Failed(Timestamp),
    /// Dropped before it was known, or an error of the call alone: neither an answer nor a failure.
    Unknown,
}

impl Gate {
    pub(super) fn new(limits: Limits, seed: u64) -> Self {
        Self {
            limits,
            phase: Phase::Closed { failures: 0 },
            epoch: 0,
            period: limits.first,
            random: Random::new(seed),
        }
    }

    /// The epoch, and in the lowest bit whether calls pass and answers change nothing.
    pub(super) fn shown(&self) -> u64 {
        let is_calm = matches!(self.phase, Phase::Closed { failures: 0 });
        self.epoch << 1 | u64::from(is_calm)
    }

    /// A ticket for a call at `now`, if it may pass.
    pub(super) fn enter(&mut self, now: Timestamp) -> Option<Ticket> {
        let is_probe = match self.phase {
            Phase::Closed { .. } => false,
            Phase::Open { .. } if self.is_open(now) => return None,
            Phase::HalfOpen { probing: true } => return None,
            Phase::Open { .. } => {
                self.change(Phase::HalfOpen { probing: true });
                true
            }
            Phase::HalfOpen { probing: false } => {
                self.phase = Phase::HalfOpen { probing: true };
                true
            }
        };
        let epoch = self.epoch;
        Some(Ticket { epoch, is_probe })
    }

    /// Whether nothing passes at `now`. A clock that stepped back to before the opening does not prolong it.
    pub(super) fn is_open(&self, now: Timestamp) -> bool {
        match self.phase {
            Phase::Open { since, until } => since <= now && now < until,
            Phase::Closed { .. } | Phase::HalfOpen { .. } => false,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed { .. })
    }

    /// Learns what became of a call; tells whether that opened the gate.
    pub(super) fn leave(&mut self, ticket: Ticket, fate: Fate) -> bool {
        if ticket.epoch != self.epoch {
            return false;
        }
        match (&mut self.phase, fate) {
            (Phase::Closed { failures }, Fate::Answered) => *failures = 0,
            (Phase::Closed { failures }, Fate::Failed(now)) => {
                *failures += 1;
                if *failures >= self.limits.failures {
                    self.open(now);
                    return true;
                }
            }
            (Phase::HalfOpen { .. }, Fate::Answered) => {
                self.period = self.limits.first;
                self.change(Phase::Closed { failures: 0 });
            }
            (Phase::HalfOpen { .. }, Fate::Failed(now)) => {
                self.open(now);
                return true;
            }
            (Phase::HalfOpen { probing }, Fate::Unknown) => *probing = false,
            (Phase::Closed { .. }, Fate::Unknown) | (Phase::Open { .. }, _) => {}
        }
        false
    }

    fn open(&mut self, now: Timestamp) {
        let wait = self.draw(self.period);
        self.period = self.period.saturating_mul(2).min(self.limits.longest);
        self.change(Phase::Open {
            since: now,
            until: Timestamp::from_nanos(now.as_nanos().saturating_add(wait)),
        });
    }

    fn change(&mut self, phase: Phase) {
        self.phase = phase;
        self.epoch += 1;
    }

    /// A number from the upper half of `most`, each as likely as the other.
    fn draw(&mut self, most: u64) -> u64 {
        let half = most / 2;
        half + self.random.up_to(most - half)
    }
}
