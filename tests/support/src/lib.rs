//! Shared parts of the tests and benchmarks that do not depend on the crate under test.
//!
//! | module | contents |
//! |---|---|
//! | `bench` | contenders that take turns, and their times |
//! | `cargo` | cargo, as a test runs it |
//! | `counting` | a global allocator that counts allocations and bytes per thread |
//! | `random` | seeded random numbers, and the number of random cases |
//! | `rational` | fractions of big integers, and the rounded rate of a bucket (feature `rational`) |
//! | `servers` | real servers, started for a test and stopped with their handles (feature `servers`) |
//! | `value` | the layout of states in a compare-and-swap store |
//!
//! Parts that depend on the crate (fake stores, a small algorithm, lists of rules) are in
//! `tests/common/` and compiled into each test that needs it: a package that depends on the crate
//! would enable features that a test without features must not see.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

pub mod bench;
mod cargo;
pub mod counting;
mod random;
#[cfg(feature = "rational")]
pub mod rational;
#[cfg(feature = "servers")]
pub mod servers;
pub mod value;

pub use cargo::cargo;
pub use random::{Random, cases, timelines};
