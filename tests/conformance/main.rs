//! The conformance suite: correct stores pass it, and each broken store fails the law that it breaks.
#![cfg(all(feature = "test-util", feature = "tokio"))]

#[path = "../common/mod.rs"]
mod common;

mod broken;
mod faulty;
mod flawed;
mod leased;
#[path = "../common/memory.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod memory;
mod recorder;
mod right;
#[path = "../common/rules.rs"]
mod rules;
mod synced;
mod turns;
