//! Proofs by many random schedules of a fleet, on the state machine of leases itself. A part of the crate's unit tests, because the
//! machine is not public.

mod fleet;
pub(crate) mod meter;
mod never_over;
pub(crate) mod rules;
mod service;
