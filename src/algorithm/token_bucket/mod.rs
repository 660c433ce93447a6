//! Tokens at a constant rate, spent as requests come.

mod rule;
mod step;
mod wire;

pub use self::rule::{TokenBucket, TokenBucketState};
pub(super) use self::{
    rule::BucketLevel,
    step::{Bucket, Fill},
};
