//! The compare-and-swap class of stores, on a store in memory.

mod bounds;
mod clocks;
mod conformance;
mod contenders;
mod count;
mod damage;
mod deltas;
mod differential;
mod kinds;
mod long_states;
mod names;
mod nodes;
mod race;

use crate::common::memory;
