//! Leases: units that a store granted to this node, and when to ask for more.
//!
//! Nothing here reads a clock or does I/O: each function takes the time, and returns what the caller has to do. So the store wrapper
//! [`Leased`](crate::store::Leased) and a simulation run the same code.

mod answer;
mod counts;
mod decision_parts;
mod grants;
mod holder;
mod known;
mod offered;
mod portion;
#[cfg(test)]
pub(crate) mod proof;
mod terms;

pub(crate) use self::{
    answer::Answer,
    counts::Counts,
    decision_parts::DecisionParts,
    holder::{Holder, Plan, Request, Step, Surroundings},
    terms::{Terms, limit_as_written},
};
