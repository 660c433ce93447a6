//! Calls while an etcd is silent, killed, restarted, or slow to reach.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]
#![allow(clippy::disallowed_methods, reason = "servers live in real time")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../../tests/common/crowd.rs"]
mod crowd;

mod callers;
mod members;
mod server;
