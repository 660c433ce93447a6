//! A queue that calls leave at a constant rate.

mod freed;
mod rule;
mod step;
mod wire;

pub use self::rule::LeakyBucket;
pub(super) use self::step::LeakyBucketState;
