//! Rules, decisions, clocks, pacing and back-off: everything that needs neither a server nor a
//! framework.

#[cfg(feature = "test-util")]
#[path = "../common/mod.rs"]
mod common;

mod algorithms;
mod backoff;
mod classes;
mod clock;
mod errors;
#[cfg(feature = "test-util")]
mod extend;
mod literals;
mod operations;
mod pace;
#[cfg(feature = "serde")]
mod serde;
