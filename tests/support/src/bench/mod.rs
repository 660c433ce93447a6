//! Benchmarks that compare contenders in one run: they take turns, and each round gives one ratio
//! per peer.
#![allow(
    clippy::disallowed_methods,
    clippy::float_arithmetic,
    reason = "benchmarks read clocks and print ratios"
)]

mod race;
mod timing;

pub use self::{
    race::{Contender, Mode, Race, Reads, Table, spread, take_turns},
    timing::{Cost, Gap, StopWatch, process_cpu, together},
};
