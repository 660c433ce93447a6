//! The store in memory, as it is in `src`, on loom's atomics and locks.
//!
//! The table, the map, and all decisions, placement and settlement around them are the files of
//! `src`, and so are the algorithms and decisions. Stand-ins replace [`sync`] (by loom's atomics
//! and locks), the `DashMap` under the map, the clock, and keys (by keys that are almost their own
//! fingerprints).
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the files under test are parts of a larger crate"
)]

pub mod calls;
mod sync;
pub mod time;

#[path = "../../../src/algorithm/mod.rs"]
pub mod algorithm;
#[path = "../../../src/error.rs"]
pub mod error;
#[path = "../../../src/quota.rs"]
pub mod quota;
#[path = "../../../src/stats.rs"]
pub mod stats;

// The inline module only sets the directory of its files.
#[path = "../../../src"]
mod production {
    pub mod decision;
    pub mod time;
}
pub use production::decision;

/// Stand-in for keys: a key is almost its own fingerprint.
pub mod key {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Key(pub u64);

    impl Key {
        pub fn digest(&self) -> u64 {
            self.0
        }
    }
}

pub mod policy {
    use std::fmt;

    /// The only policy.
    #[derive(Clone, Debug)]
    pub struct Policy;

    impl Policy {
        pub fn name(&self) -> &'static str {
            "default"
        }

        pub fn stored_name(&self) -> &'static str {
            self.name()
        }

        pub fn digest(&self) -> u64 {
            0
        }
    }

    impl fmt::Display for Policy {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.name())
        }
    }
}

#[path = "../../../src/store"]
pub mod store {
    mod ask;
    mod names;

    pub(crate) use self::ask::Spend;
    pub use self::{
        ask::{Ask, Settlement},
        names::StateKey,
    };
    pub use crate::decision::Decisions;

    pub(crate) mod engine {
        mod all_or_nothing;

        pub(in crate::store) use self::all_or_nothing::{NoRoom, States, postponed};
    }

    #[path = "local"]
    pub mod local {
        mod decide;
        mod evict;
        mod map;
        mod several;
        mod state;
        mod stats;
        mod table;

        #[path = "../../../tests/models/src/local.rs"]
        mod own;

        #[path = "../../../tests/models/src/shards.rs"]
        mod shards;

        pub use self::own::{AtCapacity, Local, Table};
        use self::{
            own::LocalInner,
            shards::{DashMap, RefMut, SHARDS},
        };
    }
}

/// Runs every interleaving with at most `interruptions` preemptions of threads that could have
/// continued.
pub fn model(interruptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    // The maximum number of atomic accesses per run. Scans of a table need many.
    builder.max_branches = 20_000;
    builder.check(run);
}
