//! The compare-and-swap class of stores, on a store in memory.
#![cfg(all(feature = "tokio", feature = "test-util"))]

mod bounds;
mod clocks;
mod conformance;
mod contenders;
mod count;
#[path = "../common/nodes.rs"]
mod counted_nodes;
mod damage;
mod deltas;
mod differential;
mod kinds;
#[path = "../common/memory.rs"]
mod memory;
mod nodes;
mod race;
