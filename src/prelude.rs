//! What most set-ups name: `use tollgate::prelude::*;`.

pub use crate::{
    AnyRule, Cost, Limit, Outcome, Quota, RateLimitLayer, TokenBucket,
    key::{BearerToken, Forwarded, ForwardedFor, Global, Header, Key, KeyExtractorExt, PeerIp},
    respond::{AsError, Grpc, Headers, Http},
    store::{Local, LocalBuilder, StoreExt},
};

#[cfg(feature = "redis")]
pub use crate::store::Redis;
#[cfg(feature = "memcached")]
pub use crate::store::{Memcached, MemcachedCounters};
