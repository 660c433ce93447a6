//! Parts that several classes of stores share.

#[cfg(any(feature = "redis", feature = "memcached"))]
pub(super) mod single_flight;
