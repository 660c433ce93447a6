//! A distance between calls that shrinks with use.

mod rule;
mod step;
mod wire;

pub use self::rule::WarmUpSpaced;
pub(super) use self::step::WarmUpSpacedState;
