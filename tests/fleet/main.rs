//! Nodes that decide without asking: leases and background synchronisation, alone and in fleets of
//! real processes.
#![cfg(all(feature = "tokio", feature = "test-util"))]

#[path = "../common/mod.rs"]
mod common;

mod blocks;
mod leases;
mod mixed;
#[cfg(all(feature = "redis", feature = "memcached"))]
mod processes;
mod synced;
