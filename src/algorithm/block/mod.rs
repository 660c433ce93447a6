//! Blocks of keys: closed for some time, whatever the limit.

mod rule;
mod step;
mod wire;

pub use self::rule::Block;
pub(super) use self::step::BlockState;
