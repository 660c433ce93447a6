//! The states of a circuit breaker.

/// The state of a circuit breaker.
///
/// Returned by [`CircuitBreaker::state`](super::CircuitBreaker::state), whose documentation has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CircuitState {
    /// All calls reach the store.
    Closed,
    /// All calls fail at once.
    Open,
    /// One call, the probe, reaches the store; all others fail at once.
    HalfOpen,
}
