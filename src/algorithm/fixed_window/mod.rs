//! A count for each window of the calendar.

mod packed;
mod rule;
mod step;
mod wire;

pub use self::rule::FixedWindow;
pub(super) use self::step::FixedWindowState;
