//! Wrappers of stores.
//!
//! Each wrapper has one task, counts what it does, and is a store itself.
//! [`StoreExt`](super::StoreExt) has a method for each, and documents the usual order.

mod blocks;
mod circuit_breaker;
mod fallback;
#[cfg(feature = "tokio")]
mod leased;
#[cfg(feature = "tokio")]
mod nodes;
#[cfg(feature = "tokio")]
mod of_fingerprint;
mod on_failure;
#[cfg(feature = "tokio")]
mod one_task;
mod remember_refusals;
#[cfg(feature = "tokio")]
mod synced;
#[cfg(feature = "tokio")]
mod timeout;

pub(crate) use self::blocks::BlockFuture;
#[cfg(feature = "tokio")]
pub use self::leased::{LeaseConfig, LeaseStats, Leased};
#[cfg(feature = "tokio")]
pub use self::synced::{SyncConfig, SyncStats, Synced};
#[cfg(feature = "tokio")]
pub use self::timeout::{Timeout, TimeoutFuture};
pub use self::{
    blocks::Blocks,
    circuit_breaker::{CircuitBreaker, CircuitBreakerConfig, CircuitBreakerFuture, CircuitState},
    fallback::{Fallback, FallbackBuilder, FallbackDone, FallbackFuture, Scalable},
    on_failure::{FailureMode, OnFailure, OnFailureFuture},
    remember_refusals::{ForgetFuture, RememberFuture, RememberRefusals},
};
