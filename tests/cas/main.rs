//! Stores of the compare-and-swap class, over one in memory.
#![cfg(all(feature = "tokio", feature = "test-util"))]

mod bounds;
mod clocks;
mod conformance;
mod contenders;
mod count;
mod damage;
mod differential;
mod kinds;
mod memory;
mod race;
#[path = "../common/value.rs"]
mod value;
