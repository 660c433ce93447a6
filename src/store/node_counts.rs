//! The number of nodes that share limits.

use std::time::Duration;

/// The nodes that were counted under a policy, as [`Store::count_node`](super::Store::count_node) returns them.
///
/// Each node counts itself once in each [period](Self::PERIOD), with a request that it sends beside one to the store. So a node that asks nothing is not counted,
/// and one that was started again counts twice in that period.
///
/// ```
/// use tollgate::store::NodeCounts;
///
/// // Two nodes have counted themselves since the period began, and eight did before.
/// let counts = NodeCounts { current: 2, previous: 8 };
/// assert_eq!(counts.nodes(), 8);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Nodes in the period so far, with the one that asks.
    pub current: u64,
    /// Nodes in the period before.
    pub previous: u64,
}

impl NodeCounts {
    /// The length of a period. Periods are counted from the Unix epoch.
    pub const PERIOD: Duration = Duration::from_secs(10);

    /// Returns the greater count: the one before is complete, and the current one sees nodes that have come since.
    pub fn nodes(self) -> u64 {
        self.current.max(self.previous)
    }
}

/// The counts under a key, for stores that keep them in one value.
#[cfg(feature = "tokio")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CountedPeriod {
    /// The number of the last period in which a node was counted.
    period: u64,
    counts: NodeCounts,
}

#[cfg(feature = "tokio")]
impl CountedPeriod {
    /// Values are kept for this time, in which they matter.
    pub(super) const KEEP: Duration = NodeCounts::PERIOD.saturating_mul(3);

    /// Counts a node in a period, after those in a value. A value that cannot be read counts none.
    pub(super) fn after(value: Option<&[u8]>, period: u64) -> Self {
        let first = NodeCounts {
            current: 1,
            previous: 0,
        };
        let Some(found) = value.and_then(Self::read) else {
            return Self {
                period,
                counts: first,
            };
        };
        let NodeCounts { current, previous } = found.counts;
        let counts = if period == found.period {
            NodeCounts {
                current: current + 1,
                previous,
            }
        } else if period == found.period + 1 {
            NodeCounts {
                previous: current,
                ..first
            }
        } else if period > found.period {
            first
        } else {
            // The clock of this node is behind. It is counted in the period that it missed, or not at all.
            let missed = u64::from(period + 1 == found.period);
            NodeCounts {
                current,
                previous: previous + missed,
            }
        };
        Self {
            period: period.max(found.period),
            counts,
        }
    }

    fn read(value: &[u8]) -> Option<Self> {
        let mut numbers = std::str::from_utf8(value).ok()?.split(' ');
        // Small enough that no sum overflows, and that scripts count them exactly.
        let mut next = || {
            let number: u64 = numbers.next()?.parse().ok()?;
            (number < 1 << 53).then_some(number)
        };
        let (period, current, previous) = (next()?, next()?, next()?);
        Some(Self {
            period,
            counts: NodeCounts { current, previous },
        })
    }

    pub(super) fn counts(self) -> NodeCounts {
        self.counts
    }

    pub(super) fn to_value(self) -> Vec<u8> {
        let NodeCounts { current, previous } = self.counts;
        format!("{} {current} {previous}", self.period).into_bytes()
    }
}
