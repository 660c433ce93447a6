//! Rules whose units can be granted ahead of their use.

#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod leasable;
mod rules;
mod several;
mod validity;

pub use self::{leasable::Leasable, validity::Validity};
