//! The layer in tonic, over real connections, with and without TLS.
#![cfg(feature = "tonic")]

#[cfg(feature = "test-util")]
#[path = "../common/mod.rs"]
mod common;

#[cfg(feature = "test-util")]
mod layer;
#[cfg(feature = "tonic-tls")]
mod tls;
