//! The arithmetic of one bucket, which token buckets, cascades and three-colour markers share.

mod correct;
mod deferred;
mod fill;

pub(super) use self::{
    deferred::{more_after, remaining},
    fill::{Bucket, BucketLevel, Fill},
};
