//! Background synchronisation: nodes that decide from memory, and tell a store later.
#![cfg(all(feature = "tokio", feature = "test-util"))]
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod ahead;
mod keys;
#[path = "../common/memory.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod memory;
mod nodes;
mod outage;
mod resets;
mod results;
mod room;
mod rules;
mod settlements;
mod several;
