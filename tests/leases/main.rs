//! Leases: units that a store grants ahead.
#![cfg(all(feature = "tokio", feature = "test-util"))]
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod all_or_nothing;
mod death;
mod faults;
mod first;
mod first_call;
mod loss;
#[path = "../common/map_store.rs"]
mod map_store;
#[path = "../common/fleet/meter.rs"]
#[allow(unreachable_pub, reason = "shared with another test")]
mod meter;
mod release;
mod rules;
mod shared;
mod slow;
