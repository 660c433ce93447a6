//! Wrappers of stores.
//!
//! Each wrapper has one task, counts what it does, and is a store itself.
//! [`StoreExt`](super::StoreExt) has a method for each, and documents the usual order.

pub(crate) mod blocks;
mod circuit_breaker;
mod failure_log;
mod fallback;
mod on_failure;
mod remember_refusals;
#[cfg(feature = "tokio")]
mod timeout;

#[cfg(feature = "tokio")]
pub use self::timeout::Timeout;
pub(crate) use self::{blocks::BlockFuture, on_failure::OnFailureFuture};
pub use self::{
    blocks::Blocks,
    circuit_breaker::{CircuitBreaker, CircuitBreakerConfig, CircuitState},
    fallback::{Fallback, FallbackBuilder},
    on_failure::{FailureMode, OnFailure},
    remember_refusals::RememberRefusals,
};
