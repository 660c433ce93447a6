//! A process of one release, `worker before|now REDIS MEMCACHED`. It reads commands from standard
//! input, one per line, and answers each with a line on standard output. It ends with its input.

#![allow(clippy::duplicate_mod, reason = "compiled for each release")]

/// The former release.
#[path = "."]
mod before {
    use std::time::Duration;

    use ::before as tollgate;

    // Names that this release has changed or moved.
    use tollgate::store::{
        Ask, CountersBuilder as CounterStoreBuilder, Error as StoreError,
        OptimisticBuilder as CasStoreBuilder, Settlement,
    };

    /// The rule of a store inside of blocks.
    pub(super) type OfBlocks = tollgate::AnyRule;
    /// The rule of counters.
    pub(super) type OfCounters = tollgate::CountedRule;

    /// Returns settings of leases of this duration.
    pub(super) fn leases(duration: Duration) -> tollgate::store::LeaseConfig {
        tollgate::store::LeaseConfig::new().hold(duration)
    }

    /// Returns settings of nodes that may be so many units ahead.
    pub(super) fn sync(units: u64) -> tollgate::store::SyncConfig {
        tollgate::store::SyncConfig::new().most_ahead(units)
    }

    /// Returns the calls that were decided while the store could not be reached.
    pub(super) fn offline(stats: &tollgate::store::SyncStats) -> u64 {
        stats.cut_off
    }

    #[path = "worker.rs"]
    pub(crate) mod worker;
    #[path = "wrapped.rs"]
    mod wrapped;
}

/// This release.
#[path = "."]
mod now {
    use std::time::Duration;

    use ::now as tollgate;
    use tollgate::store::{
        StoreError,
        driver::{Ask, CasStoreBuilder, CounterStoreBuilder, Settlement},
    };

    /// The rule of a store inside of blocks.
    pub(super) type OfBlocks = tollgate::algorithm::Blockable<tollgate::AnyRule>;
    /// The rule of counters.
    pub(super) type OfCounters = tollgate::AnyRule;

    pub(super) fn leases(duration: Duration) -> tollgate::store::LeaseConfig {
        tollgate::store::LeaseConfig::new().duration(duration)
    }

    pub(super) fn sync(units: u64) -> tollgate::store::SyncConfig {
        tollgate::store::SyncConfig::new().max_unsynced(units)
    }

    pub(super) fn offline(stats: &tollgate::store::SyncStats) -> u64 {
        stats.offline
    }

    #[path = "worker.rs"]
    pub(crate) mod worker;
    #[path = "wrapped.rs"]
    mod wrapped;
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [release, redis, memcached] = arguments.as_slice() else {
        panic!("expected `worker before|now REDIS MEMCACHED`, found {arguments:?}");
    };
    match release.as_str() {
        "before" => before::worker::serve(redis, memcached).await,
        "now" => now::worker::serve(redis, memcached).await,
        other => panic!("expected the release `before` or `now`, found `{other}`"),
    }
}
