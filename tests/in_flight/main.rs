//! Limits of calls in flight: the rule, the permits of a layer, and real connections.
#![cfg(all(
    feature = "axum",
    feature = "memcached",
    feature = "metrics",
    feature = "redis",
    feature = "test-util",
    feature = "tonic"
))]

mod compositions;
mod connections;
mod endings;
mod leases;
mod load;
mod processes;
mod responses;
mod rule;
mod stores;
mod waiting;
mod waiting_beside;

use tollgate::{Cost, InFlight, Policy, key::Key, store::Local};

fn cost(units: u64) -> Cost {
    Cost::new(units).unwrap()
}

/// The key of a header's value.
fn key(value: &str) -> Key {
    Key::bytes(value.as_bytes())
}

/// The units that are held under the default policy.
fn held(store: &Local<InFlight>, key: impl Into<Key>) -> u64 {
    // A look does not depend on the limit of the rule.
    let rule = InFlight::at_most(1 << 40);
    let look = store.look(&Policy::default(), &rule, &key.into());
    (1 << 40) - look.remaining().unwrap()
}
