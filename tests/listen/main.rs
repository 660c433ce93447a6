//! Limits of connections: their bounds, real servers, and an attacker.
#![cfg(all(
    feature = "axum",
    feature = "listen",
    feature = "metrics",
    feature = "test-util",
    feature = "tonic-tls"
))]

mod bounds;
mod clients;
mod script;
mod servers;
