//! The names of limits, and what clients are told about them.

mod name;
mod partition;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod policy;

pub use self::policy::{Policy, Unit};
