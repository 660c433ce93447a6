//! Proofs by many random schedules of a fleet, on the state machine of background synchronisation itself. A part of the crate's unit tests, because
//! the machine is not public.

mod bounded;
mod cut_off;
mod exactly_once;
mod fleet;
#[path = "../../leases/proof/meter.rs"]
mod meter;
mod network;
mod no_early_refusal;
#[path = "../../leases/proof/rules.rs"]
#[allow(dead_code, reason = "shared with the proofs of leases")]
mod rules;
