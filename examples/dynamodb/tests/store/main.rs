//! The store on a real server: its laws, its exactness, its prices and its errors.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]
#![allow(clippy::disallowed_methods, reason = "servers live in real time")]

#[path = "../common/mod.rs"]
mod common;

mod conformance;
mod errors;
mod exact;
mod prices;
