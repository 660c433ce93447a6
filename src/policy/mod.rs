//! Policies: names of limits, and what clients read about them.

mod name;
mod partition;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod policy;

pub use self::policy::{Policy, Unit};
