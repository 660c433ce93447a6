//! The outcome of a request: the decisions of all limits in front of a service.

mod entries;
mod entry;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod outcome;
mod taken;

pub use self::outcome::Outcome;
pub(crate) use self::{entry::Place, taken::Taken};
