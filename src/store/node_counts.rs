//! Counts of the nodes that share limits.
//!
//! A node counts itself once in ten seconds, beside a call that it makes anyway
//! (`FleetStore::count_node`), and not within a request for units: only some nodes ask for a key's
//! units, a script may touch only keys that lie together in a cluster, and each request would carry
//! bytes that matter once in ten seconds. A store keeps no names of nodes, only how many counted
//! themselves in the last periods, so the value does not grow; a node that was started again counts
//! twice for one period.
//!
//! Each kind of store keeps it by its own means: a script, a swap, two counters. The period is that
//! of the store's clock, as its answers show it; by the clocks of nodes, a node a minute ahead
//! would make all others count one node. A store of compare-and-swap has no clock, so its value has
//! up to eight groups of nodes whose clocks agree, twelve periods of each, and all of them are
//! added up.
//!
//! Counters decide by the clock of the node, so their answers show that one. There, a node moves
//! its periods by its distance from the store's clock (`Increment::now`), in whole periods: each
//! period of a node is one of the store. memcached returns its time when a connection is made, and
//! once a minute at most.

use std::time::Duration;

/// The nodes that were counted under a policy, as
/// [`FleetStore::count_node`](super::driver::FleetStore::count_node) returns them.
///
/// Each node counts itself once in each [period](Self::PERIOD), with a request that it sends beside
/// one to the store. So a node that asks nothing is not counted, and one that was started again
/// counts twice in that period.
///
/// ```
/// use tollgate::store::driver::NodeCounts;
///
/// // Two nodes have counted themselves since the period began, and eight did before.
/// let counts = NodeCounts { current: 2, previous: 8 };
/// assert_eq!(counts.nodes(), 8);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Nodes in the period so far, including the caller.
    pub current: u64,
    /// Nodes in the previous period. Some stores include the period before it, because the clocks
    /// of some nodes are ahead.
    pub previous: u64,
}

impl NodeCounts {
    /// Length of a period. Periods are numbered from the Unix epoch.
    pub const PERIOD: Duration = Duration::from_secs(10);

    /// Returns the greater of both counts. The previous one is complete; the current one includes
    /// nodes that joined since.
    pub fn nodes(self) -> u64 {
        self.current.max(self.previous)
    }
}

/// Number of periods that a group remembers.
#[cfg(feature = "tokio")]
const PERIODS: usize = 12;

/// The counts of a policy in one value, for stores that have no clock.
///
/// Nodes count themselves by their own clocks. Those whose clocks agree within a minute are one
/// group. A node that is far ahead or behind is in another one, so that it hides nobody.
#[cfg(feature = "tokio")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CountedNodes {
    /// The groups, most recently counted first.
    groups: Vec<ClockGroup>,
}

#[cfg(feature = "tokio")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockGroup {
    /// Number of the last period in which a node was counted.
    period: u64,
    /// Nodes counted in that period and in those before it, latest first.
    nodes: [u64; PERIODS],
    /// Maximum lateness of a node in periods, for the last period and some before. If one node's
    /// clock is ahead, the periods that the others have not reached are incomplete.
    late: [u64; 4],
    /// Number of periods that other groups have begun since.
    missed: u64,
}

#[cfg(feature = "tokio")]
impl ClockGroup {
    /// Count of numbers that a group takes in a value.
    const NUMBERS: usize = 4 + 4 + PERIODS - 2;

    /// Returns the count of the last period, and the maximum of the previous periods that may be
    /// complete.
    fn counts(&self) -> NodeCounts {
        let late = self.late.into_iter().max().unwrap_or(0) as usize;
        // The previous period may be incomplete, if the clock of a node is a little ahead.
        let before = self.nodes.iter().skip(1).take(late + 2);
        NodeCounts {
            current: self.nodes[0],
            previous: before.copied().max().unwrap_or(0),
        }
    }

    /// Returns the distance of a period from this group in periods; `None` if it is too far to
    /// belong to it. A group survives a period or two without a call.
    fn distance(&self, period: u64) -> Option<u64> {
        let is_near = period + PERIODS as u64 > self.period && period <= self.period + 3;
        is_near.then(|| period.abs_diff(self.period))
    }

    /// Counts a node in a period that belongs to the group.
    fn count(&mut self, period: u64) {
        while self.period < period {
            self.period += 1;
            self.nodes.rotate_right(1);
            self.nodes[0] = 0;
            self.late.rotate_right(1);
            self.late[0] = 0;
        }
        let late = self.period - period;
        self.nodes[late as usize % PERIODS] += 1;
        self.late[0] = self.late[0].max(late);
        self.missed = 0;
    }
}

#[cfg(feature = "tokio")]
impl CountedNodes {
    /// Time to live of a value. Older counts do not matter.
    pub(super) const KEEP: Duration = NodeCounts::PERIOD.saturating_mul(3);
    /// Limit of groups. The clocks of one service differ less.
    const MOST_GROUPS: usize = 8;

    /// Adds a node in a period to the counts in a value. A value that cannot be read counts as
    /// empty.
    pub(super) fn after(value: Option<&[u8]>, period: u64) -> Self {
        let mut groups = value.and_then(Self::read).unwrap_or_default();
        let near = groups.iter().enumerate();
        let near = near.filter_map(|(n, group)| Some((group.distance(period)?, n)));
        let known = near.min().map(|(_, n)| groups.remove(n));
        if known.is_none_or(|known| known.period < period) {
            groups.iter_mut().for_each(|group| group.missed += 1);
            let most = 4 * groups.len() as u64;
            groups.retain(|group| group.missed <= most);
        }
        let mut own = known.unwrap_or(ClockGroup {
            period,
            nodes: [0; PERIODS],
            late: [0; 4],
            missed: 0,
        });
        own.count(period);
        groups.insert(0, own);
        groups.truncate(Self::MOST_GROUPS);
        Self { groups }
    }

    fn read(value: &[u8]) -> Option<Vec<ClockGroup>> {
        // Small enough that no sum overflows, and that scripts count them exactly.
        let number = |text: &str| text.parse().ok().filter(|number: &u64| *number < 1 << 53);
        let numbers = std::str::from_utf8(value).ok()?.split(' ').map(number);
        let numbers = numbers.collect::<Option<Vec<_>>>()?;
        // The previous release wrote the first three numbers of one group.
        let groups = numbers.chunks(ClockGroup::NUMBERS).map(|group| {
            let [period, current, previous, ref rest @ ..] = *group else {
                return None;
            };
            let mut rest = rest.iter().copied();
            let mut next = || rest.next().unwrap_or(0);
            let (missed, late) = (next(), std::array::from_fn(|_| next()));
            let mut nodes = [0; PERIODS];
            (nodes[0], nodes[1]) = (current, previous);
            nodes[2..].fill_with(next);
            Some(ClockGroup {
                period,
                nodes,
                late,
                missed,
            })
        });
        groups.collect()
    }

    /// Returns the counts, with the nodes of all other groups added to both.
    pub(super) fn counts(&self) -> NodeCounts {
        let Some((own, others)) = self.groups.split_first() else {
            return NodeCounts::default();
        };
        let others: u64 = others.iter().map(|group| group.counts().nodes()).sum();
        let NodeCounts { current, previous } = own.counts();
        NodeCounts {
            current: current + others,
            previous: previous + others,
        }
    }

    pub(super) fn to_value(&self) -> Vec<u8> {
        let numbers = self.groups.iter().flat_map(|group| {
            let ([current, previous, earlier @ ..], late) = (group.nodes, group.late);
            let first = [group.period, current, previous, group.missed];
            first.into_iter().chain(late).chain(earlier)
        });
        let texts: Vec<_> = numbers.map(|number| number.to_string()).collect();
        texts.join(" ").into_bytes()
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use super::*;
    use crate::random::Random;

    /// The nodes of a fleet and their clocks, in seconds beside that of all.
    fn counts_of(
        clocks: &[i64],
        (rounds, seed): (u64, u64),
        mut value: Vec<u8>,
    ) -> (Vec<u64>, Vec<u8>) {
        let mut random = Random::new(seed);
        let mut counting: Vec<_> = (0..rounds)
            .flat_map(|round| clocks.iter().map(move |clock| (round, *clock)))
            .map(|(round, clock)| {
                // Each node counts itself at some instant of each period of its clock.
                let begin = 1_000_000_u64.saturating_add_signed(clock) / 10;
                let here = 10 * (begin + round) + random.up_to(9);
                (here.saturating_add_signed(-clock), here / 10, round)
            })
            .collect();
        counting.sort_unstable();
        let mut last = Vec::new();
        for (_, period, round) in counting {
            let counted = CountedNodes::after(Some(&value), period);
            // A node that is behind is counted with the others once they are as far behind in the
            // value, and at last not all nodes are there.
            if (10..rounds - 2).contains(&round) {
                last.push(counted.counts().nodes());
            }
            value = counted.to_value();
        }
        (last, value)
    }

    #[test]
    fn no_clock_hides_other_nodes() {
        for seed in 0..30 {
            for (clocks, hidden) in [
                ([0; 6], 0),
                ([0, 0, 0, 0, 0, 60], 0),
                ([0, 0, 0, 0, 0, -60], 0),
                ([0, 0, 0, 3, 9, 11], 0),
                ([0, 0, 0, 0, 25, 29], 0),
                ([0, 200, -200, 1_000, -1_000, 86_400], 0),
                // Where clocks differ by all sorts of times, one may be missed.
                ([0, 0, 20, 20, 30, -20], 1),
            ] {
                let (counts, _) = counts_of(&clocks, (40, seed), Vec::new());
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(clocks != [0; 6] || *most == 6, "equal clocks count exactly");
                assert!(
                    *least >= 6 - hidden && *most <= 9,
                    "{clocks:?}, seed {seed}: {least} to {most}"
                );
            }
        }
    }

    #[test]
    fn nodes_that_are_gone_are_forgotten() {
        for seed in 0..30 {
            let (_, value) = counts_of(&[0, 0, 0, 60, 60, 300], (20, seed), Vec::new());
            let (counts, _) = counts_of(&[0, 0], (60, seed), value);
            assert!(
                counts[20..].iter().all(|nodes| (2..=4).contains(nodes)),
                "{counts:?}"
            );
        }
    }

    #[test]
    fn a_value_of_the_release_before_is_read_and_one_that_is_damaged_counts_none() {
        let counts = |value: &[u8]| CountedNodes::after(Some(value), 7).counts();
        let of = |current, previous| NodeCounts { current, previous };
        assert_eq!(counts(b"7 3 5"), of(4, 5));
        assert_eq!(counts(b"6 3 5"), of(1, 5));
        assert_eq!(
            counts(b"7 3 5 0 1 0 0 0 6 0 0 0 0 0 0 0 0 0 70 2 2 1"),
            of(6, 8)
        );
        for damaged in [
            "",
            "7",
            "7 1",
            "7 x 1",
            "-7 1 1",
            "7 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 8",
            "9007199254740992 1 1",
        ] {
            assert_eq!(counts(damaged.as_bytes()), of(1, 0), "{damaged}");
        }
    }
}
