//! The wrappers of stores: alone, in all orders, and under a layer.
#![cfg(all(feature = "test-util", feature = "tokio"))]

#[path = "../common/mod.rs"]
mod common;

#[allow(dead_code)]
mod circuit_breaker;
mod circuit_breaker_model;
mod composition;
mod contention;
mod delegation;
mod fakes;
mod fall_back;
mod fleet;
mod leased;
mod pauses;
mod remember;
mod remember_twin;
mod scaled;
mod shards;
mod timeout;
mod unsettled;
mod unsupported;

// Counts by thread, so tests that run at the same time do not disturb each other.
#[global_allocator]
static ALLOCATOR: support::counting::Counting = support::counting::Counting;
