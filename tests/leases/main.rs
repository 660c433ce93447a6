//! Leases: units that a store grants ahead.
#![cfg(all(feature = "tokio", feature = "test-util"))]
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod all_or_nothing;
mod death;
mod faults;
mod first;
#[path = "../common/map_store.rs"]
mod map_store;
mod release;
mod rules;
mod shared;
mod slow;
