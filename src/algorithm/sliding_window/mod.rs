//! A window that slides over the counters of its slices.

mod packed;
mod packed_counters;
mod rule;
mod slices;
mod step;
mod wire;

pub use self::rule::SlidingWindow;
pub(super) use self::step::SlidingWindowState;
