//! The store in a real etcd: what its two calls do, what it decides, and what lies in it.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]
#![allow(clippy::disallowed_methods, reason = "servers live in real time")]

#[path = "../common/mod.rs"]
mod common;

mod conformance;
mod exact;
mod swap;
mod values;
