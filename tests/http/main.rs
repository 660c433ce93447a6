//! Layers in front of HTTP services: keys, answers, dry runs, tokens, and the contract of tower.

#[cfg(all(feature = "tokio", feature = "test-util"))]
#[path = "../common/mod.rs"]
mod common;

mod allocations;
mod answers;
#[cfg(feature = "serde")]
mod any_key;
#[cfg(all(feature = "axum", feature = "test-util"))]
mod axum;
#[cfg(all(feature = "tokio", feature = "test-util"))]
mod boxed;
mod cookies_and_hosts;
#[cfg(all(feature = "tokio", feature = "test-util"))]
mod dry_run;
#[cfg(all(feature = "introspect", feature = "test-util"))]
mod introspect;
mod keys;
#[cfg(feature = "tokio")]
mod leaky_layer;
#[cfg(all(feature = "tokio", feature = "test-util"))]
mod live_rule;
#[cfg(all(feature = "tokio", feature = "test-util"))]
mod obeying;
mod oversized;
mod pairs;
#[cfg(feature = "axum")]
mod placement;
// Clients have addresses of their own on the loopback network, which Linux alone gives them.
#[cfg(all(feature = "axum", feature = "test-util", target_os = "linux"))]
mod ported;
mod refusals;
mod same_state;
mod server_faults;
mod stacked;
#[cfg(all(feature = "tokio", feature = "test-util"))]
mod tower_contract;
#[cfg(feature = "axum")]
mod uploads;
mod upstream_fields;

// Counts by thread, so tests that run at the same time do not disturb each other.
#[global_allocator]
static ALLOCATOR: support::counting::Counting = support::counting::Counting;
