//! Messages of the compiler for parts that do not fit together, or whose feature is off.
//!
//! A program of its own: it runs the compiler on packages that it writes, and other features change what it tests.

#[cfg(all(
    feature = "axum",
    feature = "redis",
    feature = "serde",
    feature = "tokio",
    feature = "tonic",
    feature = "tracing"
))]
mod compile_fail;
#[cfg(any(
    not(feature = "tokio"),
    all(feature = "redis", not(feature = "redis-tls"))
))]
mod missing_features;
