//! Blocks of keys: closed for some time, whatever the limit.

mod acquiring;
mod after_refusals;
mod attempt;
mod block_after;
mod block_policies;
mod blockage;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod blocks;
mod counters;
#[cfg(test)]
mod every_rule;
mod offender;

pub(crate) use self::blockage::BlockFuture;
pub use self::blocks::Blocks;
#[cfg(feature = "tokio")]
pub(in crate::store) use self::blocks::no_blocks_inside;
