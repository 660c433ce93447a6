//! The conformance suite: stores that are right pass it, and each that is broken is told which law it breaks.
#![cfg(all(feature = "test-util", feature = "tokio"))]

#[path = "../common/mod.rs"]
mod common;

mod broken;
mod faulty;
mod flawed;
mod right;
mod turns;
