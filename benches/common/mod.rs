//! Shared parts of the benchmarks of the store in memory: keys, limiters with their keys loaded,
//! and the floor.

pub(crate) mod decider;
pub(crate) mod floor;
pub(crate) mod keys;
