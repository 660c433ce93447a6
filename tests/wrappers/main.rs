//! The wrappers of stores: alone, in all orders, and under a layer.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]
#![cfg(all(feature = "test-util", feature = "tokio"))]

#[allow(dead_code)]
mod circuit_breaker;
mod circuit_breaker_model;
mod composition;
mod contention;
mod fakes;
mod fall_back;
mod fleet;
mod leased;
mod remember;
mod remember_twin;
mod scaled;
mod shards;
mod timeout;
mod unsettled;
mod unsupported;

#[global_allocator]
static ALLOCATOR: support::counting::Counting = support::counting::Counting;
