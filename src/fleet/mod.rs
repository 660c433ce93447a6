//! Limits of a fleet of nodes, without a round trip to the store for each call.
//!
//! [Leases](lease) are granted ahead by the store, so the limit is never exceeded. With [background
//! synchronisation](sync) a node decides alone and pushes its units later, so the limit is exceeded
//! by a stated bound. Both are pure state machines; [`Leased`] and [`Synced`] are the wrappers of
//! stores around them.

mod config;
mod keys;
mod lease;
mod leased;
mod nodes;
mod shared;
mod stats;
mod sync;
mod synced;
mod tasks;

pub use self::{
    config::{LeaseConfig, SyncConfig},
    leased::Leased,
    stats::{LeaseStats, SyncStats},
    synced::Synced,
};
