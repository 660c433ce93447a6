//! Proofs by many random schedules of a fleet, on the state machine of background synchronisation itself. A part of the crate's unit tests, because
//! the machine is not public.

mod bounded;
mod corrections;
mod cut_off;
mod exactly_once;
mod fleet;
mod network;
mod no_early_refusal;
mod ticks;
mod triggers;

use crate::lease::proof::{meter, rules};
