//! Keyed rate limiting as tower middleware.
//!
//! A [`RateLimitLayer`] wraps any tower service: an axum router, a tonic server, a client, a job worker. A
//! [key](key) says who is limited, a rule how much may be spent, a [store] remembers, and the
//! [answer](respond) tells the client honestly when to come back.
//!
//! Tower's own `RateLimitLayer` makes all requests wait, has no keys, and counts for each clone alone. This one refuses
//! by key, and all clones share one budget.
//!
//! # Example
//!
#![cfg_attr(feature = "axum", doc = "```no_run")]
#![cfg_attr(not(feature = "axum"), doc = "```text")]
//! use axum::{Router, routing::get};
//! use std::net::SocketAddr;
//! use tollgate::prelude::*;
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let app = Router::new()
//!     .route("/", get(async || "hello"))
//!     .layer(RateLimitLayer::new(TokenBucket::per_second(10).burst(20)).key(PeerIp::new()));
//!
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//! axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
//! # Ok(()) }
//! ```
//!
//! # The way of a request
//!
//! ```text
//!             request
//!                │ key::KeyExtractor              respond::Respond
//!                ▼                                     ▲        ▲
//!    service ──► key ──► store.acquire(asks) ──► Decision ──────┘ refuse │ admit, annotate
//!    (layer,     cost        ▲                      │                    │
//!     future)    rule        │ state lives here     └──── allow ─► inner service
//!                      store::{local, redis, …}
//!                            │ drives
//!                      algorithm::{…}       (state × now × cost) → (state', decision)    pure
//!                            │ speaks
//!                      quota · decision · time::Timestamp
//! ```
//!
//! # Which rule?
//!
//! Start with a [`TokenBucket`]; the [guide] tells when to take another one.
//!
//! | rule | guarantees | does not guarantee |
//! |---|---|---|
//! | [`TokenBucket`] | at most burst + rate · Δt units in any span Δt; a full burst after a rest | at most the quota in every window: `100/1m` lets 199 through in some minute |
//! | [`LeakyBucket`] | departures at least an interval apart; first in, first out; a bounded wait | an answer at once |
//! | [`FixedWindow`] | at most the limit in each window of the calendar | the same across a boundary: twice the limit |
//! | [`SlidingLog`] | at most the limit in every window, to the nanosecond | small states: 16 bytes a call |
//! | [`SlidingWindow`] | at most the limit in what it estimates; a small mean error | the estimate: up to twice the limit, less one |
//! | [`WarmUp`], [`WarmUpSpaced`] | a rate that grows with use, and falls with rest | the full rate to whoever is cold |
//! | [`Cascade`], [`ThreeColor`] | a class for each call, by what could pay for it | |
//! | `(A, B)`, or `a & b` in text | both limits, spent together or not at all | |
//! | [`AnyRule`] | what its text says, chosen by configuration or per request | |
//!
//! # Which store?
//!
//! | store | for | at its cap |
//! |---|---|---|
//! | [`Local`](store::Local), the default | one process; decides within the call, without allocation | lets newcomers inherit debts, turns them away with 503, or admits them, by choice |
//! | `Redis` (feature `redis`) | many instances with one limit; one round trip, by the server's clock | what the server's memory allows |
//! | `Memcached` (feature `memcached`) | the same, by compare-and-swap: a read, and a write if it is admitted | an evicted client begins afresh |
//! | `MemcachedCounters` (feature `memcached`) | the same for fixed and sliding windows: one round trip | an evicted window begins afresh |
//! | `Optimistic` (feature `tokio`), over anything that can `CompareAndSwap` | the same in a store of one's own: two functions | what is evicted begins afresh |
//! | `Counters` (feature `tokio`), over anything that can `Increment` | fixed and sliding windows, in a cache that can only add: four short methods | the same |
//! | anything that implements [`Store`](store::Store) | state elsewhere; `.fail_open()`, `.fail_closed()` or `.fall_back_to(…)` says what happens when it cannot tell | as it says |
//!
//! # Work that is pulled
//!
//! A worker that pulls its work need not be refused: a [`Pacer`](pace::Pacer) says when it may go on, at an instant that it is given,
//! or by waiting for it, as a future or as a stream. See [`pace`].
//!
//! # Clients that come back
//!
//! [`backoff`] draws how long a client waits before it tries again, never shorter than a server's `Retry-After`; with the feature
//! `retry` for `tower::retry`.
//!
//! # Features
//!
//! None is on by default; the crate alone pulls in no framework and no runtime.
//!
//! | feature | adds |
//! |---|---|
//! | `tokio` | layers with rules that delay requests, which cannot be built otherwise; [pacing](pace) by futures and streams; `TokioClock`; the drivers of stores that compare and swap, and of counters |
//! | `axum` | the peer address from `ConnectInfo`, keys by `MatchedPath`, `Outcome` as an extractor; and `tokio` |
//! | `tonic` | the peer address from `TcpConnectInfo`; and `tokio` |
//! | `tonic-tls` | the same under TLS, from `TlsConnectInfo` |
//! | `redis` | the store in Redis, Redis Cluster, and Valkey |
//! | `redis-tls` | `rediss://`, `rediss-cluster://` and `rediss-sentinel://` URLs |
//! | `memcached` | the stores in memcached: any rule by compare-and-swap, windows by counters |
//! | `retry` | the delays of [`backoff`] as `Backoff` and `MakeBackoff` of `tower::retry` |
//! | `serde` | quotas and rules as strings |
//! | `tracing` | events for the operator: what the server lacks, once for each policy and cause; why a store failed, once a minute for each |
//! | `test-util` | `ManualClock`, and `tollgate::testing`: a conformance suite for stores, and stores that fail when told to |
//!
//! # Minimum supported Rust version
//!
//! 1.88 with the default features. Newer versions of the optional frameworks may ask for more.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Of the crate itself, not of its tests and examples.
#![cfg_attr(not(test), warn(clippy::float_arithmetic, clippy::unwrap_used))]

pub mod algorithm;
pub mod backoff;
mod decision;
mod defaults;
mod error;
pub mod key;
#[cfg(feature = "tracing")]
mod log;
mod middleware;
#[doc(hidden)]
pub mod missing;
mod outcome;
pub mod pace;
mod policy;
pub mod prelude;
mod quota;
mod random;
pub mod respond;
pub mod store;
mod sync;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
pub mod time;

pub use self::{
    algorithm::{AnyRule, CountedRule},
    decision::{Charge, Cost, Decision, Position, Verdict},
    error::Error,
    middleware::{
        FixedRule, Limit, RateLimit, RateLimitLayer, RequestCost, ResponseFuture, SelectRule,
    },
    outcome::Outcome,
    policy::{Policy, Unit},
    quota::Quota,
    time::Timestamp,
};

use self::algorithm::rules;
algorithm::algorithms!(rules);

#[doc = include_str!("../DESIGN.md")]
pub mod design {}

#[doc = include_str!("guide.md")]
pub mod guide {}

#[doc = include_str!("operations.md")]
pub mod operations {}

#[doc = include_str!("../BENCHMARKS.md")]
pub mod benchmarks {}
