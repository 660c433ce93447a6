//! Two rates and three colours: RFC 2698.

mod rule;
mod step;
mod wire;

pub use self::rule::ThreeColor;
pub(super) use self::step::ThreeColorState;
