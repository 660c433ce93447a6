//! Proofs by many random schedules of a fleet, on the state machine of background synchronisation itself. A part of the crate's unit tests, because
//! the machine is not public.
//!
//! A schedule has calls, failures of the network, deaths, and [operations](fleet::Operation): resets, corrections, grants, clocks that step, nodes
//! without the wrapper or with settings of their own. It has no blocks: these are made and looked at outside of the wrapper, whose
//! `unblocked` passes them by the accounts, so the machine sees nothing of them. They have tests of their own.

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
