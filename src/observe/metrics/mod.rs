//! Metrics through the facade `metrics`.

pub(super) mod families;
mod family;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod metrics;
mod policies;
mod policy_metrics;

pub use self::metrics::Metrics;
