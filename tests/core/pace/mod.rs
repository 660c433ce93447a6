//! Pacing: decisions at given instants, waiting in line, streams, and schedules.

mod pacer;
#[cfg(feature = "tokio")]
mod ready;
mod round_robin;
#[cfg(feature = "tokio")]
mod stream;
#[cfg(feature = "tokio")]
mod turns;

use std::{num::NonZeroU64, time::Duration};

use tollgate::{
    Charge, Cost, Decision, Quota, Timestamp, Verdict,
    algorithm::{Algorithm, Step},
};

const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;
/// A full hour in the year 2026.
const BASE: u64 = 1_767_235_200 * SECOND;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(BASE + nanos)
}

fn cost(units: u64) -> Cost {
    Cost::new(units).unwrap()
}

/// A rule that delays: departures an interval apart, and a queue of `queue` units.
///
/// It does not refund, so nothing may rely on refunds.
#[derive(Clone, Debug)]
struct Spaced {
    interval: u64,
    queue: u64,
    /// `true` if a cost departs with the last of its units, otherwise with the first.
    last: bool,
}

impl Spaced {
    fn new(interval: u64, queue: u64) -> Self {
        Self {
            interval,
            queue,
            last: false,
        }
    }

    /// Returns the departure of the first unit of a cost, and the decision about all units.
    fn ask(&self, state: Option<&u64>, now: Timestamp, cost: u64) -> (u64, Decision) {
        let delay = state.map_or(0, |free| free.saturating_sub(now.as_nanos()));
        let capacity = self.queue + 1;
        let room = capacity.checked_sub(cost).map(|room| room * self.interval);
        let (verdict, retry) = match room {
            Some(room) if delay <= room => {
                let own = if self.last {
                    (cost - 1) * self.interval
                } else {
                    0
                };
                match delay + own {
                    0 => (Verdict::Allow, None),
                    wait => (Verdict::Delay(Duration::from_nanos(wait)), None),
                }
            }
            Some(room) => (Verdict::Refuse, Some(Duration::from_nanos(delay - room))),
            None => (Verdict::Refuse, None),
        };
        let left = (capacity * self.interval).saturating_sub(delay) / self.interval;
        let quota = Quota::new(1, Duration::from_nanos(self.interval));
        let decision = Decision::new(verdict, now, cost)
            .with_limit(NonZeroU64::new(capacity).unwrap(), quota)
            .with_remaining(left)
            .with_retry_after(retry);
        (delay, decision)
    }
}

impl Algorithm for Spaced {
    /// The next free departure, in nanoseconds.
    type State = u64;

    fn step(&self, state: &mut Option<u64>, now: Timestamp, cost: Cost) -> Step {
        let (delay, decision) = self.ask(state.as_ref(), now, cost.get());
        if !decision.is_admitted() {
            return Step::Kept(decision);
        }
        *state = Some(now.as_nanos() + delay + cost.get() * self.interval);
        let (_, look) = self.ask(state.as_ref(), now, 1);
        Step::Wrote(decision.with_remaining(look.remaining().unwrap()))
    }

    fn look(&self, state: Option<&u64>, now: Timestamp) -> Decision {
        self.ask(state, now, 1).1
    }

    fn settle(&self, _: &mut Option<u64>, _: &Charge, _: Timestamp, _: u64) {}

    fn forgettable_at(&self, free: &u64) -> Timestamp {
        Timestamp::from_nanos(*free)
    }
}

/// A total of this many units, never refilled.
#[cfg(feature = "tokio")]
#[derive(Clone, Debug)]
struct Lifetime(u64);

#[cfg(feature = "tokio")]
impl Lifetime {
    fn answer(&self, verdict: Verdict, now: Timestamp, cost: u64, spent: u64) -> Decision {
        let quota = Quota::new(self.0, Quota::MAX_PERIOD);
        Decision::new(verdict, now, cost)
            .with_limit(NonZeroU64::new(self.0).unwrap(), quota)
            .with_remaining(self.0 - spent)
    }
}

#[cfg(feature = "tokio")]
impl Algorithm for Lifetime {
    /// The units spent.
    type State = u64;

    fn step(&self, state: &mut Option<u64>, now: Timestamp, cost: Cost) -> Step {
        let spent = state.unwrap_or(0);
        match spent.checked_add(cost.get()) {
            Some(total) if total <= self.0 => {
                *state = Some(total);
                Step::Wrote(self.answer(Verdict::Allow, now, cost.get(), total))
            }
            _ => Step::Kept(self.answer(Verdict::Refuse, now, cost.get(), spent)),
        }
    }

    fn look(&self, state: Option<&u64>, now: Timestamp) -> Decision {
        let spent = *state.unwrap_or(&0);
        let verdict = if spent < self.0 {
            Verdict::Allow
        } else {
            Verdict::Refuse
        };
        self.answer(verdict, now, 0, spent)
    }

    fn settle(&self, state: &mut Option<u64>, charge: &Charge, _: Timestamp, actual: u64) {
        if let Some(spent) = state {
            *spent = (*spent + actual).saturating_sub(charge.cost);
        }
    }

    fn forgettable_at(&self, _: &u64) -> Timestamp {
        Timestamp::MAX
    }
}

/// Tokio's time since [`BASE`], slowed down by a number of millionths.
#[cfg(feature = "tokio")]
#[derive(Clone, Copy)]
struct Paused {
    begun: tokio::time::Instant,
    slow: u64,
}

#[cfg(feature = "tokio")]
impl Paused {
    fn new() -> Self {
        Self {
            begun: tokio::time::Instant::now(),
            slow: 0,
        }
    }
}

#[cfg(feature = "tokio")]
impl tollgate::time::Clock for Paused {
    fn now(&self) -> Timestamp {
        let elapsed = self.begun.elapsed().as_nanos() as u64;
        at(elapsed - elapsed / 1_000_000 * self.slow)
    }
}
