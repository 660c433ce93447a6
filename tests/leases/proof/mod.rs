//! Proofs by many random schedules of a fleet, on the state machine of leases itself. A part of the crate's unit tests, because the
//! machine is not public.

mod fleet;
mod meter;
mod never_over;
mod rules;
mod service;
