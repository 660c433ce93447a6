//! Proofs by many random schedules of a fleet, on the state machine of background synchronisation
//! itself. A part of the crate's unit tests, because the machine is not public.
//!
//! A schedule has calls, failures of the network, deaths, and [operations](fleet::Operation):
//! resets, corrections, grants, clocks that step, nodes without the wrapper or with settings of
//! their own. It has no blocks: these are made and looked at outside of the wrapper, whose
//! `unblocked` passes them by the views, so the machine sees nothing of them. They have tests of
//! their own.
//!
//! The meters are those of leases. A meter is given the limit and (N − 1) · U more, and U for each
//! node that died. In windows, units near a border count on neither side. A schedule has several
//! keys, of which a node may have room for some only, a number of nodes that becomes known and
//! changes, and rules that change per call. Each of B1 to B8 has a schedule of a broken law that
//! must be noticed. `fleet/allowance.rs` says for each operation how many units more the meter
//! allows. A test has the meter allow one unit less of each, and it refuses a call.

mod bounded;
mod corrections;
mod exactly_once;
mod fleet;
mod network;
mod no_early_refusal;
mod offline;
mod ticks;
mod triggers;

use std::time::Duration;

use super::Bound;
use crate::{
    fleet::lease::proof::{meter, rules},
    time::Timestamp,
};

/// The usual time between two synchronisations of a key, in nanoseconds.
const PERIOD: u64 = 100_000_000;

/// Returns what one of two nodes may do alone, up to so many units ahead.
pub(super) fn bound(most: u64) -> Bound {
    Bound {
        number: most,
        most,
        period: Duration::from_nanos(PERIOD),
        nodes: Some(2),
        is_closed: false,
    }
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(1_000_000_000 + nanos)
}
