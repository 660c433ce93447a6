//! The store in memory.

mod builder;
mod decide;
mod displaced;
mod fingerprint;
mod kinds;
mod lazy_table;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod local;
mod map;
mod new_key;
mod occupancy;
mod place;
mod settle;
mod several;
mod shards;
mod slot;
mod stats;
mod table;
mod working_state;

#[cfg(feature = "tokio")]
pub(super) use self::fingerprint::Fingerprinter;
use self::local::Inner;
pub use self::{
    builder::{AtCapacity, LocalBuilder},
    local::Local,
    stats::Stats,
};
