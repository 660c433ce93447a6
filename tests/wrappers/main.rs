//! What a store can be wrapped in: each wrapper alone, all orders of them, and a layer over the whole stack.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]
#![cfg(all(feature = "test-util", feature = "tokio"))]

#[allow(dead_code)]
#[path = "../../benches/common/counting.rs"]
mod counting;

mod circuit_breaker;
mod circuit_breaker_model;
mod composition;
mod contention;
mod fakes;
mod fall_back;
mod fleet;
mod remember;
mod remember_twin;
mod scaled;
mod shards;
mod timeout;
mod unsettled;
mod unsupported;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;
