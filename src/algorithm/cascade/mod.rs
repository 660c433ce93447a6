//! Several token buckets in order: the next one for costs that the one before cannot pay.

mod rule;
mod step;
mod wire;

pub use self::rule::Cascade;
pub(super) use self::step::CascadeState;
