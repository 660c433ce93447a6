//! When a circuit breaker opens, and for how long.

use std::time::Duration;

use super::gate::Limits;
use crate::{
    error::Error,
    quota::Written,
    random,
    time::{Clock, SystemClock},
};

/// When a circuit breaker opens, and for how long: what
/// [`circuit_breaker`](super::super::super::StoreExt::circuit_breaker) takes.
///
/// | setting | default | |
/// |---|---|---|
/// | [`failures`](Self::failures) | 5 | failures in a row that open it |
/// | [`open_for`](Self::open_for) | 1 s, at most 30 s | how long it stays open; twice as long after each probe that fails |
/// | [`seed`](Self::seed) | drawn anew | what the length of a pause is drawn by |
/// | [`clock`](Self::clock) | the system's | |
///
/// Each pause is drawn from the upper half of its length: 0.5 to 1 s, then 1 to 2 s, and so on, so that a fleet that
/// lost its store at one instant does not come back at one instant.
#[derive(Clone, Debug)]
pub struct CircuitBreakerConfig<C = SystemClock> {
    limits: Limits,
    seed: Option<u64>,
    clock: C,
}

impl CircuitBreakerConfig {
    /// Five failures in a row; a second, doubled up to half a minute; the system's clock.
    pub fn new() -> Self {
        Self {
            limits: Limits {
                failures: 5,
                first: 1_000_000_000,
                longest: 30_000_000_000,
            },
            seed: None,
            clock: SystemClock::default(),
        }
    }
}

impl Default for CircuitBreakerConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> CircuitBreakerConfig<C> {
    /// The same with so many failures in a row that open it.
    ///
    /// # Panics
    ///
    /// Where [`try_failures`](Self::try_failures) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn failures(self, in_a_row: u32) -> Self {
        self.try_failures(in_a_row)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same with so many failures in a row that open it.
    ///
    /// # Errors
    ///
    /// When it is 0.
    pub fn try_failures(mut self, in_a_row: u32) -> Result<Self, Error> {
        if in_a_row == 0 {
            return Err(Error::new(
                "a circuit breaker that opens after 0 failures: expected at least 1; \
                 leave the breaker away to ask the store always",
            ));
        }
        self.limits.failures = in_a_row;
        Ok(self)
    }

    /// The same, open for `first` at most, and for twice as long after each probe that fails, up to `longest`.
    ///
    /// # Panics
    ///
    /// Where [`try_open_for`](Self::try_open_for) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn open_for(self, first: Duration, longest: Duration) -> Self {
        self.try_open_for(first, longest)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same, open for `first` at most, and for twice as long after each probe that fails, up to `longest`.
    ///
    /// Both are cut to 2⁶⁴ − 1 ns.
    ///
    /// # Errors
    ///
    /// When `first` is zero, or `longest` is shorter.
    pub fn try_open_for(mut self, first: Duration, longest: Duration) -> Result<Self, Error> {
        if first.is_zero() || longest < first {
            return Err(Error::new(format!(
                "a circuit breaker that is open for {} and then for {} at most: expected a \
                 time above zero, and no shorter one after it; 1 s and 30 s are the defaults",
                Written(first),
                Written(longest)
            )));
        }
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        (self.limits.first, self.limits.longest) = (nanos(first), nanos(longest));
        Ok(self)
    }

    /// The same with a seed of one's own: the pauses are then the same in each run.
    ///
    /// For tests. Nodes of one fleet need different seeds, or they probe in step.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        let seed = Some(seed);
        Self { seed, ..self }
    }

    /// The same by another clock than the system's.
    #[must_use]
    pub fn clock<D: Clock>(self, clock: D) -> CircuitBreakerConfig<D> {
        CircuitBreakerConfig {
            limits: self.limits,
            seed: self.seed,
            clock,
        }
    }

    /// Its parts; a seed that is not set is drawn by the operating system.
    pub(super) fn into_parts(self) -> (Limits, u64, C) {
        (
            self.limits,
            self.seed.unwrap_or_else(random::seed),
            self.clock,
        )
    }
}
