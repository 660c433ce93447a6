//! Keyed rate limiting as tower middleware, for axum, tonic, and any other tower service.
//!
//! A [`RateLimitLayer`] limits the requests of each client. A [key] identifies the client, a rule
//! such as [`TokenBucket`] sets the quota, a [store] keeps the state, and a [responder](respond)
//! answers refused requests. Clones of a service share one budget.
//!
//! # Add it
//!
//! ```toml
//! [dependencies]
//! tollgate = { version = "0.1", features = ["axum"] }
//! ```
//!
#![cfg_attr(feature = "axum", doc = "```no_run")]
#![cfg_attr(not(feature = "axum"), doc = "```text")]
//! use axum::{Router, routing::get};
//! use std::net::SocketAddr;
//! use tollgate::prelude::*;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // 10 requests per second for each client address, and bursts of up to 20.
//!     let limit = RateLimitLayer::new(TokenBucket::per_second(10).burst(20)).key(PeerIp::new());
//!     let app = Router::new().route("/", get(async || "hello")).layer(limit);
//!
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//!     axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
//!     Ok(())
//! }
//! ```
//!
//! # What a client sees
//!
//! An admitted response has `RateLimit` fields with the requests that are left. A refusal is a 429
//! with a problem document. A client that waits for `Retry-After` is admitted, if no other request
//! of the same key comes first.
//!
//! ```text
//! HTTP/1.1 429 Too Many Requests
//! ratelimit-policy: "default";q=20;w=2
//! ratelimit: "default";r=0;t=1
//! retry-after: 1
//! content-type: application/problem+json
//! ```
//!
//! gRPC clients get `RESOURCE_EXHAUSTED` with `RetryInfo`.
//!
//! # Read on
//!
//! - [Guide](guide): a page for each question, with a program that runs.
//! - [Coming from tower_governor, governor or express-rate-limit](migration): each setting beside
//!   ours, and the traps.
//! - [Public servers](public_servers): which limit stops which attack, from the connection to the
//!   answer.
//! - [Clients](clients): which header fields clients read, and when they retry.
//! - [Operations](operations): shared stores, failures, roll-outs, alerts.
//! - [Fleets](fleets): leases and background synchronisation.
//! - [Comparison](comparison): other rate limiters, and when to take them instead.
//! - [Design](design): the internals, and the reasons for them.
//! - [Benchmarks](benchmarks): measured times and memory.
//!
//! # Request flow
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
//! Each part can be replaced by [your own](guide::your_own_parts).
//!
//! # Rules
//!
//! Start with a [`TokenBucket`]; [one page](guide::rules) compares the others.
//!
//! | rule | guarantees | does not guarantee |
//! |---|---|---|
//! | [`TokenBucket`] | at most burst + rate · Δt units in any span Δt; a full burst after a rest | at most the quota in every window: `100/1m` admits up to 199 in some minute |
//! | [`LeakyBucket`] | departures at least an interval apart, in order, with a bounded wait | an answer at once |
//! | [`FixedWindow`] | at most the limit in each window of the calendar | the limit across a boundary: up to twice as many |
//! | [`SlidingLog`] | at most the limit in every window, to the nanosecond | small states: 16 bytes a call |
//! | [`SlidingWindow`] | at most the limit in its estimate, which has a small mean error | the limit in every window: at worst twice as many, less one |
//! | [`WarmUp`], [`WarmUpSpaced`] | a rate that grows with use and falls with rest | the full rate to a client that rested |
//! | [`Cascade`], [`ThreeColor`] | a class for each request, by the bucket that paid for it | |
//! | `(A, B)`, or `a & b` in text | both limits, charged together or not at all | |
//! | [`InFlight`] | at most so many calls at once | a rate |
//! | [`AnyRule`] | any of these, from configuration text or per request | |
//!
//! # Stores
//!
//! | store | for | when memory is full |
//! |---|---|---|
//! | [`Local`](store::Local), the default | one process; decides within the call, without allocation | new keys inherit usage, are answered 503, or are admitted, as configured |
//! | [`Redis`] (feature `redis`) | one limit for many instances; one round trip, by the server's clock | as the server is configured |
//! | [`Memcached`] (feature `memcached`) | one limit for many instances, by compare-and-swap: a read, and a write if admitted | an evicted key starts afresh |
//! | [`MemcachedCounters`] (feature `memcached`) | fixed and sliding windows for many instances; one round trip | an evicted window starts afresh |
//! | [`CasStore`] (feature `tokio`) | your own store that can [`CompareAndSwap`]: two functions | an evicted key starts afresh |
//! | [`CounterStore`] (feature `tokio`) | fixed and sliding windows in your own cache that can [`Increment`]: four short functions | an evicted window starts afresh |
//! | [`Transactional`](store::driver::Transactional) | your own storage that can lock its states or run transactions: two functions | as you decide |
//! | your own [`Store`](store::Store) | anything else | as you decide |
//!
//! A store that can fail is wrapped to choose what happens then:
//! [`fail_open`](store::StoreExt::fail_open), [`fail_closed`](store::StoreExt::fail_closed) or
//! [`fall_back_to`](store::StoreExt::fall_back_to). Other wrappers give each call a deadline
//! ([`Timeout`]), stop calling a server that fails
//! ([`CircuitBreaker`](store::CircuitBreaker)), remember refusals
//! ([`RememberRefusals`](store::RememberRefusals)), and block keys ([`Blocks`](store::Blocks)).
//! With leases ([`Leased`]) or background synchronisation ([`Synced`]), each instance decides most
//! calls from its memory. All of them are methods of [`StoreExt`](store::StoreExt).
//!
//! # Beyond the layer
//!
//! - [`Limiter`]: the budget of a limit without a request, for frames, jobs and consoles; blocks of
//!   keys.
//! - [`pace`]: a worker that should wait rather than refuse jobs awaits a [`Pacer`](pace::Pacer).
//! - [`backoff`]: retry delays for clients, never shorter than the server's `Retry-After`.
//!
//! # Features
//!
//! None is enabled by default. The crate alone depends on no framework and no runtime, and on 29
//! crates in all. The last column has their number with one feature, on Linux; most of what a
//! framework adds, its applications have already.
//!
//! | feature | adds | crates |
//! |---|---|---|
//! | `tokio` | layers whose rules delay requests, [pacing](pace) by futures and streams, `Http::drain_bodies`, `TokioClock`, store timeouts, and the drivers of compare-and-swap and counter stores | 33 |
//! | `axum` | the peer address from `ConnectInfo`, keys by `MatchedPath`, `Outcome` as an extractor; enables `tokio` | 56 |
//! | `tonic` | the peer address from `TcpConnectInfo`; enables `tokio` | 69 |
//! | `tonic-tls` | the peer address from `TlsConnectInfo`; enables `tonic` | 77 |
//! | `metrics` | [`observe`]'s `Metrics` and `Publish`: decisions and counters of stores through the facade `metrics` | 31 |
//! | `redis` | the store in Redis, Redis Cluster, and Valkey | 94 |
//! | `redis-tls` | `rediss://`, `rediss-cluster://` and `rediss-sentinel://` URLs | 103 |
//! | `memcached` | the stores in memcached: any rule by compare-and-swap, windows by counters | 35 |
//! | `config` | `config::RouteLimits`: limits and routes from a file; enables `serde` and `tokio` | 42 |
//! | `listen` | [`listen::Guarded`](public_servers): limits of connections, around a listener; enables `tokio` | 36 |
//! | `introspect` | `key::Introspect`: bearer tokens are looked up before the limit (RFC 7662); enables `tokio` | 57 |
//! | `retry` | [`backoff`] as `Backoff` and `MakeBackoff` of `tower::retry` | 38 |
//! | `serde` | quotas and rules as strings | 31 |
//! | `tracing` | events for the operator: mistakes of the set-up, once for each policy and cause; failures of a store, once a minute for each; a sample of refusals by [`observe`]'s `RefusalLog`; a span for each decision that a store does not make at once | 31 |
//! | `test-util` | `ManualClock`, and `tollgate::testing`: a conformance suite for stores, and stores that fail on demand | 29 |
//!
//! # Minimum supported Rust version
//!
//! 1.88 with the default features. The optional frameworks may need a newer one.
//!
// Without its feature, a name leads to the table of features.
#![cfg_attr(feature = "redis", doc = "[`Redis`]: store::Redis")]
#![cfg_attr(not(feature = "redis"), doc = "[`Redis`]: crate#features")]
#![cfg_attr(
    feature = "memcached",
    doc = "[`Memcached`]: store::Memcached
[`MemcachedCounters`]: store::MemcachedCounters"
)]
#![cfg_attr(
    not(feature = "memcached"),
    doc = "[`Memcached`]: crate#features
[`MemcachedCounters`]: crate#features"
)]
#![cfg_attr(
    feature = "tokio",
    doc = "[`CasStore`]: store::driver::CasStore
[`CompareAndSwap`]: store::driver::CompareAndSwap
[`CounterStore`]: store::driver::CounterStore
[`Increment`]: store::driver::Increment
[`Timeout`]: store::Timeout
[`Leased`]: store::Leased
[`Synced`]: store::Synced"
)]
#![cfg_attr(
    not(feature = "tokio"),
    doc = "[`CasStore`]: crate#features
[`CompareAndSwap`]: crate#features
[`CounterStore`]: crate#features
[`Increment`]: crate#features
[`Timeout`]: crate#features
[`Leased`]: crate#features
[`Synced`]: crate#features"
)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs, missing_debug_implementations)]
// For the crate itself, not for its tests.
#![cfg_attr(not(test), warn(clippy::float_arithmetic, clippy::unwrap_used))]

// First, because its macros are known below it alone.
#[macro_use]
mod derive;

pub mod algorithm;
pub mod backoff;
mod charging;
#[cfg(feature = "config")]
pub mod config;
mod decision;
mod dry_run;
mod error;
#[cfg(feature = "tokio")]
mod fleet;
pub mod future;
#[cfg(feature = "introspect")]
mod introspect;
pub mod key;
mod limiter;
#[cfg(feature = "listen")]
pub mod listen;
mod live_rule;
mod locks;
#[cfg(feature = "tracing")]
mod log;
mod middleware;
pub mod observe;
mod outcome;
pub mod pace;
mod permit;
mod policy;
pub mod prelude;
mod quota;
mod random;
#[cfg(feature = "tokio")]
mod renewals;
pub mod respond;
mod stats;
pub mod store;
mod striped;
mod sync;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
pub mod time;
mod trace;
mod unsatisfied;

pub use self::{
    algorithm::AnyRule,
    charging::{CarryHandle, ChargeHandle, ChargeIf, HandOver, LookFirst, Reserve, Usage},
    decision::{Charge, Cost, Decision, Position, Verdict},
    dry_run::DryRunReport,
    error::Error,
    limiter::Limiter,
    live_rule::LiveRule,
    middleware::{
        BoxLayer, BoxLimit, By, Limit, Limits, RateLimit, RateLimitLayer, RequestCost, SelectRule,
    },
    outcome::Outcome,
    permit::Permit,
    policy::{Policy, Unit},
    quota::Quota,
    time::Timestamp,
};

use self::algorithm::rules;
algorithm::algorithms!(rules);

#[doc = include_str!("../DESIGN.md")]
pub mod design {}

#[doc = include_str!("guide/index.md")]
pub mod guide {
    /// Declares a module for each page, which has the text of a file.
    macro_rules! pages {
        ($($page:ident)*) => {
            $(
                #[doc = include_str!(concat!("guide/", stringify!($page), ".md"))]
                pub mod $page {}
            )*
        };
    }
    // In the order of the index.
    pages!(
        first_limit behind_a_proxy plans several_servers when_redis_fails costs logins llm_tokens
        in_flight grpc a_file a_fleet testing trying_a_limit your_own_parts pacing without_requests
        outgoing_calls metrics headers rules compiler
    );
}

#[doc = include_str!("public_servers.md")]
pub mod public_servers {}

#[doc = include_str!("clients.md")]
pub mod clients {}

#[doc = include_str!("migration.md")]
pub mod migration {}

#[doc = include_str!("operations.md")]
pub mod operations {}

#[doc = include_str!("fleets.md")]
pub mod fleets {}

#[doc = include_str!("comparison.md")]
pub mod comparison {}

#[doc = include_str!("../BENCHMARKS.md")]
pub mod benchmarks {}

// Compiles the examples of the README, which name the features of all of them.
#[cfg(all(doctest, feature = "axum", feature = "redis", feature = "tonic"))]
#[doc = include_str!("../README.md")]
struct Readme;
