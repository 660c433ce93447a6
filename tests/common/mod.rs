//! Helpers that several test programs share, and that depend on the crate; `tests/support` has
//! those that do not.
#![allow(dead_code, reason = "each program uses its part")]
#![allow(unreachable_pub, reason = "items of a test module")]

#[cfg(feature = "tokio")]
pub mod crowd;
pub mod custom;
#[cfg(all(feature = "tokio", feature = "test-util"))]
pub mod fleet;
pub mod map_store;
#[cfg(all(feature = "tokio", feature = "test-util"))]
pub mod memory;
pub mod rules;
