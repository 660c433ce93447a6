//! A distance between calls that shrinks with use.

mod rule;
mod step;
mod wire;

pub use self::{rule::WarmUpSpaced, step::WarmUpSpacedState};
