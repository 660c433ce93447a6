//! The events that a layer reports to its observers.
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
#[cfg(feature = "tracing")]
mod logging;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(all(feature = "metrics", feature = "memcached", feature = "redis"))]
mod publish;
mod requests;
mod seen;
mod sketches;
#[cfg(feature = "tracing")]
mod span;
#[cfg(feature = "tracing")]
mod subscriber;

// Counts by thread, so tests that run at the same time do not disturb each other.
#[global_allocator]
static ALLOCATOR: support::counting::Counting = support::counting::Counting;
