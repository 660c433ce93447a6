//! The contenders of the benchmark of the store in Redis, and their measurement.
//!
//! | file | |
//! |---|---|
//! | `contender` | who decides: the store, its floors, its peer |
//! | `leased` | the store with leases, and the store that is pushed to later |
//! | `refusals` | refusals that are remembered |
//! | `turn` | many decisions at once, and what they cost |
//! | `race` | contenders that take turns, and the table of their ratios |
#![allow(clippy::disallowed_methods, reason = "benchmarks read clocks")]

pub mod contender;
pub mod leased;
pub mod race;
pub mod refusals;
pub mod turn;
