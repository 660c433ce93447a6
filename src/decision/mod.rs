//! Decisions: the answer to one request, its numbers for clients, and its charge.

mod build;
mod charge;
mod combine;
mod cost;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod decision;
mod limit;
mod list;
mod numbers;
mod take_charge;
mod verdict;

pub use self::{
    charge::{Charge, Position},
    cost::Cost,
    decision::Decision,
    list::Decisions,
    verdict::Verdict,
};
pub(crate) use self::{
    limit::RuleLimit,
    numbers::{Compute, Deferred, DeferredState, Numbers},
};
