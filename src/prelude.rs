//! The names that most programs need: `use tollgate::prelude::*;`.
//!
//! ```
//! use tollgate::prelude::*;
//!
//! let layer = RateLimitLayer::new(TokenBucket::per_second(10).burst(20)).key(PeerIp::new());
//! # let _ = layer;
//! ```

pub use crate::{
    AnyRule, Cost, Limit, Limiter, Outcome, Quota, RateLimitLayer, TokenBucket,
    key::{
        AnyKey, BearerToken, Forwarded, ForwardedFor, Global, Header, Key, KeyExtractorExt, PeerIp,
    },
    respond::{AsError, Grpc, Headers, Http},
    store::{Local, LocalBuilder, StoreExt},
};

#[cfg(feature = "redis")]
pub use crate::store::Redis;
#[cfg(feature = "memcached")]
pub use crate::store::{Memcached, MemcachedCounters};
