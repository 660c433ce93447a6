//! The events that a layer reports to its observers, and what observers make of them.

#[cfg(all(feature = "test-util", feature = "tokio", feature = "metrics"))]
#[path = "../common/mod.rs"]
mod common;

#[cfg(all(
    feature = "test-util",
    feature = "introspect",
    feature = "listen",
    feature = "memcached",
    feature = "metrics",
    feature = "redis"
))]
mod all_metrics;
#[cfg(all(feature = "test-util", feature = "tokio"))]
mod counters;
#[cfg(all(feature = "test-util", feature = "tokio"))]
mod events;
#[cfg(all(feature = "test-util", feature = "tokio", feature = "metrics"))]
mod leases;
#[cfg(all(feature = "test-util", feature = "tokio", feature = "tracing"))]
mod log;
#[cfg(feature = "tracing")]
mod logging;
#[cfg(all(feature = "test-util", feature = "tokio", feature = "metrics"))]
mod metrics;
#[cfg(all(
    feature = "test-util",
    feature = "tokio",
    feature = "metrics",
    feature = "memcached",
    feature = "redis"
))]
mod publish;
#[cfg(all(feature = "test-util", feature = "tokio"))]
mod requests;
#[cfg(all(feature = "test-util", feature = "tokio"))]
mod seen;
mod sketches;
#[cfg(all(feature = "test-util", feature = "tokio", feature = "tracing"))]
mod span;
#[cfg(all(feature = "test-util", feature = "tokio", feature = "tracing"))]
mod subscriber;

// Counts by thread, so tests that run at the same time do not disturb each other.
#[global_allocator]
static ALLOCATOR: support::counting::Counting = support::counting::Counting;
