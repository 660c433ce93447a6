//! The units by which a limit may be exceeded, and the operations that allow them.

/// An event of a schedule beside calls, deaths and failures of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fleet::sync::proof) enum Operation {
    /// A node resets a key. The limit may be exceeded by the units that the store has at that
    /// instant, and by those of this node that never come to the store. The units of others come
    /// later.
    Reset,
    /// A call costs less in the end, and counts as if it had cost that from its begin. Nothing more
    /// is allowed.
    Refund,
    /// A call costs more in the end. Nothing more is allowed, and the units above are counted for
    /// no limit.
    Surcharge,
    /// A node grants units to a key. The limit may be exceeded by so many.
    Grant,
    /// The clock of a node steps. Until an answer sets what it knows of the clock of the store, it
    /// may be ahead by the units that it may be ahead otherwise; and what it charges by the wrong
    /// time may be refunded although it has been refilled. A step back allows that of windows
    /// alone.
    NodeClock,
    /// The clock of the store steps. Forward, a bucket is refilled at once, and another window may
    /// begin. The meter goes by the same clock. Of a window, a node may not have heard of that, as
    /// if its own clock had stepped. Back, nothing more is allowed.
    StoreClock,
    /// A node without the wrapper has a call decided by the store. All such nodes together are one
    /// more node, which is never ahead.
    Plain,
    /// A node has settings of its own. The bound is what all nodes may be ahead but the one that
    /// may be ahead least.
    Setting,
}

impl Operation {
    pub(in crate::fleet::sync::proof) const ALL: [Self; 8] = [
        Self::Reset,
        Self::Refund,
        Self::Surcharge,
        Self::Grant,
        Self::NodeClock,
        Self::StoreClock,
        Self::Plain,
        Self::Setting,
    ];
}

/// The units of a key that operations allow above the bound.
#[derive(Debug, Default)]
pub(in crate::fleet::sync::proof) struct Allowance {
    units: u64,
    /// Deltas that a reset dropped while they were pushed, each with the number of its node, its
    /// own number, and its units. They are allowed as long as the store does not take them in.
    dropped: Vec<((u64, u64), u64)>,
}

impl Allowance {
    /// Returns the units.
    pub(in crate::fleet::sync::proof) fn units(&self) -> u64 {
        self.units + self.dropped.iter().map(|(_, units)| units).sum::<u64>()
    }

    pub(super) fn add(&mut self, units: u64) {
        self.units += units;
    }

    /// Notes a delta that was pushed, and dropped before the answer.
    pub(super) fn drop_told(&mut self, number: (u64, u64), units: u64) {
        self.dropped.push((number, units));
    }

    /// Notes that the store has taken in a delta.
    pub(super) fn came_late(&mut self, number: (u64, u64)) {
        self.dropped.retain(|(dropped, _)| *dropped != number);
    }
}
