//! Nodes that decide alone, and tell the store in the background.

mod accounts;
mod call;
mod config;
mod inner;
mod line;
mod recent_most;
mod shares;
mod stats;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod synced;

pub use self::{config::SyncConfig, stats::SyncStats, synced::Synced};
