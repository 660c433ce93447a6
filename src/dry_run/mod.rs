//! Dry runs: limits that decide and count, without effect on requests.

mod counters;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod dry_run;
mod enforcement;
mod report;

// Public because bounds of the layer name it, but without a public path.
pub(crate) use self::enforcement::Enforcement;
pub use self::{dry_run::DryRun, enforcement::Enforced, report::DryRunReport};
