//! The classes of stores, on stores in memory; limiters; and the conformance suite.
#![cfg(all(feature = "tokio", feature = "test-util"))]
#![allow(clippy::disallowed_methods, reason = "servers live in real time")]

#[path = "../common/mod.rs"]
mod common;

mod cas;
mod conformance;
mod counter;
mod limiter;
#[cfg(feature = "redis")]
mod script;

// Counts by thread, so tests that run at the same time do not disturb each other.
#[global_allocator]
static ALLOCATOR: support::counting::Counting = support::counting::Counting;
