//! The store in a real etcd: its two calls, its decisions, and its stored values.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]
#![allow(clippy::disallowed_methods, reason = "servers live in real time")]

#[path = "../common/mod.rs"]
mod common;

mod blocks;
mod conformance;
mod exact;
mod swap;
mod values;
