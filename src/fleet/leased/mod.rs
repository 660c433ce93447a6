//! Units that the store grants ahead, so that most calls need no round trip.

mod book;
mod call;
mod config;
mod exact;
mod keys;
mod lease;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod leased;
mod recent_calls;
mod stats;
mod sweep;

pub use self::{config::LeaseConfig, leased::Leased, stats::LeaseStats};
