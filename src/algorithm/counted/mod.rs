//! Rules for stores that can only add to counters and return totals.

#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod counted;
mod rule;
mod slicing;

pub use self::{counted::Counted, rule::CountedRule, slicing::Slicing};
