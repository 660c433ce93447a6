//! Limits of connections: their bounds, real servers, and an attacker.
#![cfg(all(
    feature = "axum",
    feature = "listen",
    feature = "metrics",
    feature = "test-util",
    feature = "tonic-tls"
))]

// It reads the memory of processes.
#[cfg(target_os = "linux")]
mod attack;
mod bounds;
mod clients;
mod script;
mod servers;
