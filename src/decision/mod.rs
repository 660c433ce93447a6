//! Decisions: the answer to one request, the numbers that a client is told, and the charge that can be corrected.

mod charge;
mod combine;
mod cost;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod decision;
mod list;
mod numbers;

pub(crate) use self::numbers::{Compute, Deferred, DeferredState, Numbers};
pub use self::{
    charge::{Charge, Position},
    cost::Cost,
    decision::{Decision, Verdict},
    list::Decisions,
};
