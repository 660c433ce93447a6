//! Leases: units that a store granted to this node, and when to ask for more.
//!
//! Nothing here reads a clock or does I/O: each function takes the time, and returns what the
//! caller has to do. So the store wrapper [`Leased`](crate::store::Leased) and a simulation run the
//! same code.
//!
//! # Grants
//!
//! An ask may be for more than its cost (`Ask::up_to`). A grant is then an ordinary decision with a
//! greater charge: its position on the time axis gives the lifetime of its units, its remaining
//! units are what the store has left, its refusal says when to come again. So stores need no second
//! function, wrappers forward nothing, and a store that cannot grant spends the cost. A grant is at
//! most a quarter of what remains, so that a node that asks a moment later finds something.
//!
//! A node holds a quarter of a limit at most, beside refunds of its calls. Several grants could add
//! up to more where answers are slow. So what others lack while a node holds units that it does not
//! need has a bound that needs only the number of nodes (`Leased::undershoot_bound`).
//!
//! Debt is forced onto the store at once, not with the next request for units, because that request
//! may not come.
//!
//! # Fleets with and without leases
//!
//! Nodes without leases add nothing to a bucket, although they do not pay for the lease duration. A
//! grant leaves a bucket of burst C at a level l of C − ⌈r·h⌉ at most, and its units end as if the
//! bucket were refilled from l to there, h later: at any time, no more of them are valid than C
//! less the level that l would have become. What was granted or admitted later is gone from the
//! level. So the level and all units that are valid are C together at most, on any number of nodes
//! with any lease durations. A log has no such order: it forgets by the rule of the node that asks.

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
