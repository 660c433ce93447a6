//! Limiters without requests, and blocks of keys: in memory, and on real servers.

mod after_refusals;
mod blocks;
mod capacity;
mod conformance;
mod counted;
mod failures;
mod grants;
mod kept;
mod layer;
#[cfg(feature = "memcached")]
mod on_memcached;
#[cfg(feature = "redis")]
mod on_redis;
mod oracle;
mod shared;

use std::time::Duration;

use tollgate::{
    Cost, Policy,
    algorithm::Algorithm,
    store::{Local, LocalBuilder},
    time::ManualClock,
};

const SECOND: Duration = Duration::from_secs(1);

fn policy() -> Policy {
    Policy::new("api")
}

fn cost(units: u64) -> Cost {
    Cost::new(units).unwrap()
}

/// A store whose clock the test moves.
fn local<A: Algorithm>() -> (Local<A, ManualClock>, ManualClock) {
    let clock = ManualClock::default();
    let store = LocalBuilder::new().clock(clock.clone()).build();
    (store, clock)
}
