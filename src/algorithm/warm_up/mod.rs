//! A limit per second that grows with use.

mod rule;
mod step;
mod wire;

pub use self::rule::WarmUp;
pub(super) use self::step::WarmUpState;
