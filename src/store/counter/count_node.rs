//! Counting the nodes that use a policy.

use std::time::Duration;

use super::inner::Inner;
use crate::{
    algorithm::Counted,
    store::{Error, Increment, NodeCounts, node_counts::CountedNodes},
    time::{Clock, Timestamp},
};

/// The periods before the current one whose counters are read. Nodes round to whole periods how far their clocks are ahead of the store's, so
/// in the last one some may not have counted themselves yet.
const BEFORE: u64 = 2;
const KEEP: Duration = CountedNodes::KEEP.saturating_add(NodeCounts::PERIOD);

impl<I: Increment, Rule: Counted, K: Clock> Inner<I, Rule, K> {
    /// Counts this node in a period of its clock. Each period has a counter for each policy, whose name begins with `prefix`.
    pub(super) async fn count_node(&self, prefix: &[u8], period: u64) -> Result<NodeCounts, Error> {
        let period = match self.increment.now().await? {
            Some(store) => in_store(period, self.now(), store),
            None => period,
        };
        let name = |period: u64| [prefix, format!(":{period}").as_bytes()].concat().into();
        let before: Vec<Box<[u8]>> = (1..=BEFORE)
            .filter_map(|n| period.checked_sub(n).map(name))
            .collect();
        let totals = self.increment.add(&name(period), 1, KEEP, &before).await?;
        Ok(NodeCounts {
            current: totals.total,
            previous: totals.beside.into_iter().max().unwrap_or(0),
        })
    }
}

/// Returns the period by the store's clock for one by this node's clock. A period that is not the node's current one stays as it is.
///
/// The difference is rounded to whole periods, so that each period of this node has one of the store.
fn in_store(period: u64, here: Timestamp, store: Timestamp) -> u64 {
    let length = NodeCounts::PERIOD.as_nanos() as i128;
    let (here, store) = (i128::from(here.as_nanos()), i128::from(store.as_nanos()));
    if (i128::from(period) - here / length).abs() > 1 {
        return period;
    }
    let ahead = (store - here + length / 2).div_euclid(length);
    u64::try_from(i128::from(period) + ahead).unwrap_or(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_period_of_a_node_is_one_of_the_store() {
        let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
        for (period, here, store, expected) in [
            (100, 1_003, 1_003, 100),
            (100, 1_003, 1_007, 100),
            (100, 1_003, 998, 100),
            (100, 1_003, 1_009, 101),
            (106, 1_063, 1_003, 100),
            (94, 943, 1_003, 100),
            // The period has ended meanwhile.
            (106, 1_070, 1_010, 100),
            // A caller's own numbers.
            (7, 1_003, 5_000, 7),
            (0, 0, 1_000, 100),
            (100, 1_003, 0, 0),
        ] {
            let found = in_store(period, at(here), at(store));
            assert_eq!(found, expected, "{period} at {here}, {store} in the store");
        }
        let last = u64::MAX / 10_000_000_000;
        assert_eq!(in_store(last, Timestamp::MAX, at(0)), 0);
        assert_eq!(in_store(0, at(0), Timestamp::MAX), last);
    }
}
