//! The events that a layer reports to its observers.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]
#![cfg(all(feature = "test-util", feature = "tokio"))]

#[cfg(feature = "metrics")]
#[path = "../common/mod.rs"]
mod common;
mod counters;
mod events;
#[cfg(feature = "metrics")]
mod leases;
#[cfg(feature = "tracing")]
mod log;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(all(feature = "metrics", feature = "memcached", feature = "redis"))]
mod publish;
mod requests;
mod seen;
#[cfg(feature = "tracing")]
mod span;
#[cfg(feature = "tracing")]
mod subscriber;
