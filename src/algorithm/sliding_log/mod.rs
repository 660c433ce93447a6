//! A log of the instants of the admitted calls.

mod rule;
mod step;
mod wire;

pub use self::rule::SlidingLog;
pub(super) use self::step::SlidingLogState;
