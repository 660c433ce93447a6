//! Wrappers of stores.
//!
//! Each wrapper has one task, counts what it does, and is a store itself.
//! [`StoreExt`](super::StoreExt) has a method for each, and documents the usual order.

pub(crate) mod blocks;
mod circuit_breaker;
mod fallback;
mod on_failure;
mod remember_refusals;
#[cfg(feature = "tokio")]
mod timeout;

pub(crate) use self::blocks::BlockFuture;
#[cfg(feature = "tokio")]
pub use self::timeout::{Timeout, TimeoutFuture};
pub use self::{
    blocks::Blocks,
    circuit_breaker::{CircuitBreaker, CircuitBreakerConfig, CircuitBreakerFuture, CircuitState},
    fallback::{Fallback, FallbackBuilder, FallbackDone, FallbackFuture},
    on_failure::{FailureMode, OnFailure, OnFailureFuture},
    remember_refusals::{ForgetFuture, RememberFuture, RememberRefusals},
};
