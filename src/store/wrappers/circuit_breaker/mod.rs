//! Stops calling a store that keeps failing.

mod circuit;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod circuit_breaker;
mod circuits;
mod config;
mod future;
#[cfg(feature = "tracing")]
mod log;
mod state;

pub use self::{
    circuit_breaker::CircuitBreaker, config::CircuitBreakerConfig, future::CircuitBreakerFuture,
    state::CircuitState,
};
