//! Tokens at a constant rate, spent as requests come.

mod given_back;
mod rule;
mod step;
mod wire;

pub use self::rule::TokenBucket;
pub(super) use self::step::TokenBucketState;
