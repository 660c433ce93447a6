//! Proofs by many random schedules of a fleet, on the state machine of leases itself. A part of the
//! crate's unit tests, because the machine is not public.
//!
//! The proof runs a fleet in one thread, with the real rules and the real state machine. A meter of
//! each rule, written apart from the rules, is fed with all calls at their true times: a call that
//! the store decided, at the time of the store; one from a lease, when it was spent. A window from
//! the first call begins when the store was first asked, also if the answer was lost. Each law has
//! a variant that breaks it, which the meters must notice.

mod fleet;
pub(crate) mod meter;
mod never_over;
pub(crate) mod rules;
mod service;
