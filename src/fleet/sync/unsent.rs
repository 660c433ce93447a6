//! Units that a node has admitted and not pushed, and what is read of a view when they are pushed.
//!
//! A delta from which units are taken back counts from its last unit on. It may have begun with
//! those units; from the first one on, the store would refill the others before they were spent.
//! Which units remain is not known, so later is right for the limit, and costs what is refilled
//! meanwhile if the bucket was full.

use std::sync::Arc;

use super::{estimates::Traffic, offline::OfflineShare};
use crate::{algorithm::Syncable, time::Timestamp};

/// Units that were admitted here, and that the store does not know yet. They are pushed to it as
/// one delta.
#[derive(Clone, Debug)]
pub(crate) struct Unsent<Rule> {
    /// The rule that admitted them.
    pub(crate) rule: Arc<Rule>,
    /// The instant from which on the units count, by the clock of this node: that of the first
    /// unit, or of the last one if some were taken back.
    pub(crate) at: Timestamp,
    /// The instant of the first unit, by the clock of this node.
    pub(super) first: Timestamp,
    /// That instant by the clock of the store, as it is estimated.
    pub(super) store_at: Timestamp,
    /// The instant of the last unit, by the clock of this node.
    pub(super) last: Timestamp,
    pub(crate) units: u64,
    /// The number of the delta; 0 until it is sent. It is sent again with the same number.
    pub(crate) number: u64,
}

impl<Rule> Unsent<Rule> {
    /// Takes units out that are refunded, as far as there are any. Returns their number.
    ///
    /// The delta may have begun with them, and a bucket have been full before the next one was
    /// spent. So the others count from the last unit on: from the first one on, the store would
    /// refill them before they were spent.
    pub(super) fn refund(&mut self, units: u64) -> u64 {
        let taken = self.units.min(units);
        self.units -= taken;
        self.at = self.at.max(self.last);
        taken
    }
}

/// The part of a view that is read when units are pushed, and while the node is offline.
#[derive(Clone)]
pub(super) struct PushState<Rule: Syncable> {
    /// That of the last call.
    pub(super) rule: Arc<Rule>,
    /// Units that were sent. Whether the store has them is not known before an answer, so they are
    /// sent again with the same numbers.
    pub(super) in_flight: Vec<Unsent<Rule>>,
    /// The latest instant of the charges that were sent.
    pub(super) sent_until: Timestamp,
    /// `None` while the node is not offline, and if it has no share of the limit then.
    pub(super) offline: Option<Box<OfflineShare<Rule>>>,
    pub(super) traffic: Traffic,
    /// When a refusal was pushed last.
    pub(super) refusal_pushed: Option<Timestamp>,
}
