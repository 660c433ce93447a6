//! A log of the instants of the admitted calls.

mod log;
mod rule;
mod step;
mod wire;

pub(super) use self::log::SlidingLogState;
pub use self::rule::SlidingLog;
