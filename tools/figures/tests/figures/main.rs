//! The simulation: what leases keep, and what they cost.

mod faults;
mod fleet;
mod meter;
mod program;
mod rules;
mod shared;
