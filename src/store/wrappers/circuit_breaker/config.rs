//! Settings of a circuit breaker.

use std::time::Duration;

use super::circuit::CircuitLimits;
use crate::{
    error::Error,
    quota::Written,
    random,
    time::{Clock, SystemClock},
};

/// Settings of a [`CircuitBreaker`](super::CircuitBreaker): the failures that open it, and the pauses.
///
/// | setting | default | meaning |
/// |---|---|---|
/// | [`failures`](Self::failures) | 5 | failures, one after the other, that open the circuit |
/// | [`open_for`](Self::open_for) | 1 s, at most 30 s | pause before a probe; doubled after each probe that fails |
/// | [`seed`](Self::seed) | random | seed of the random part of a pause |
/// | [`clock`](Self::clock) | the system's | clock of the pauses |
///
/// Each pause is random, from half its length to all of it: 0.5 to 1 s, then 1 to 2 s, and so on. So the nodes of a fleet,
/// which lost their store at the same time, do not probe at the same time.
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
#[derive(Clone, Debug)]
#[must_use]
pub struct CircuitBreakerConfig<C = SystemClock> {
    limits: CircuitLimits,
    seed: Option<u64>,
    clock: C,
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
    /// Sets the number of failures that open the circuit: one after the other, without an answer between them. Behind a
    /// [deadline](crate::store::StoreExt::timeout) `d`, a silent server is noticed after this number of times `d`.
    ///
    /// # Panics
    ///
    /// When [`try_failures`](Self::try_failures) fails; for literals.
    #[track_caller]
    pub fn failures(self, in_a_row: u32) -> Self {
        self.try_failures(in_a_row)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Sets the number of failures that open the circuit: one after the other, without an answer between them. Behind a
    /// [deadline](crate::store::StoreExt::timeout) `d`, a silent server is noticed after this number of times `d`.
    ///
    /// # Errors
    ///
    /// When it is 0.
    pub fn try_failures(mut self, in_a_row: u32) -> Result<Self, Error> {
        if in_a_row == 0 {
            return Err(Error::new(
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
        self.try_open_for(first, longest)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Sets the longest first pause; it doubles after each probe that fails, up to `longest`.
    ///
    /// Both are limited to 2⁶⁴ − 1 ns.
    ///
    /// # Errors
    ///
    /// When `first` is zero, or `longest` is shorter.
    pub fn try_open_for(mut self, first: Duration, longest: Duration) -> Result<Self, Error> {
        if first.is_zero() || longest < first {
            return Err(Error::new(format!(
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

    /// Sets the seed of the random part of the pauses, for tests that need the same pauses in each run.
    ///
    /// Nodes of one fleet need different seeds, or they probe at the same time.
    pub fn seed(self, seed: u64) -> Self {
        let seed = Some(seed);
        Self { seed, ..self }
    }

    /// Sets another clock than the system's.
    pub fn clock<D: Clock>(self, clock: D) -> CircuitBreakerConfig<D> {
        CircuitBreakerConfig {
            limits: self.limits,
            seed: self.seed,
            clock,
        }
    }

    /// Returns the settings; a seed that is not set comes from the operating system.
    pub(super) fn into_parts(self) -> (CircuitLimits, u64, C) {
        (
            self.limits,
            self.seed.unwrap_or_else(random::seed),
            self.clock,
        )
    }
}
