//! Nodes that decide without asking: leases and background synchronisation, alone and in fleets of
//! real processes.
#![cfg(all(feature = "tokio", feature = "test-util"))]

#[path = "../common/mod.rs"]
mod common;

use tollgate::{Timestamp, time::TokioClock};

mod blocks;
mod leases;
mod mixed;
#[cfg(all(feature = "redis", feature = "memcached"))]
mod processes;
mod synced;

/// Returns a clock that starts at half past an hour: in no test, a window of an hour ends.
fn clock() -> TokioClock {
    TokioClock::starting_at(Timestamp::from_nanos(1_767_227_400_000_000_000))
}
