//! Deltas of nodes that decide by themselves, and the number of nodes that use a policy.
//!
//! Counters have no room for sequence numbers, so what may have been added is not added again, and
//! its units are counted once, when the addition ends without an answer (`CounterStats::doubtful`).
//! Deltas are added concurrently, without tasks, so that a call that is dropped has counted what it
//! left open. The numbers of a key are forgotten when all its deltas of a call are answered, since
//! a node sends those of a key again together.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    hash::BuildHasher,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use super::{
    decide::{CounterDriver, miscounted},
    slices::{CounterSet, SliceTotals},
};
use crate::{
    algorithm::Counted,
    decision::Charge,
    locks::lock,
    stats::Counter,
    store::{
        Batch, Delta, Increment, NodeCounts, Pulled, StoreError,
        delta::ResolvedDelta,
        engine::{concurrently, each_delta},
        node_counts::CountedNodes,
    },
    time::Timestamp,
};

/// The most additions of a call that are in flight together.
const AT_ONCE: usize = 64;

pub(super) type CounterDelta<Rule> = ResolvedDelta<Rule, DeltaCounters>;

/// The counters of a delta.
pub(super) struct DeltaCounters {
    set: CounterSet,
    /// Hash of the policy, the key and the kind of state. Rules that differ in their windows have
    /// other counters, but a node pushes their deltas together.
    state: u64,
}

/// Deltas that were pushed and not answered yet. A counter cannot recognize a repeated delta, so
/// this side adds none twice.
#[derive(Default)]
pub(super) struct OpenDeltas(Mutex<HashMap<(u64, u64), u64>>);

impl OpenDeltas {
    /// The most keys and nodes that are remembered. Beyond that, a repeated delta of another key
    /// may count twice.
    const MOST: usize = 65_536;

    /// Records a delta that is about to be added. Returns `false` if it may have been added before.
    fn record(&self, hash: u64, Batch { node, number }: Batch) -> bool {
        let mut last = self.last();
        let is_full = last.len() >= Self::MOST;
        match last.entry((hash, node)) {
            Entry::Occupied(known) if *known.get() >= number => return false,
            Entry::Occupied(mut known) => *known.get_mut() = number,
            Entry::Vacant(_) if is_full => {}
            Entry::Vacant(new) => drop(new.insert(number)),
        }
        true
    }

    /// Forgets the deltas of a key and node, which were answered and will not be pushed again.
    fn close(&self, hash: u64, node: u64) {
        self.last().remove(&(hash, node));
    }

    /// Locks the last sequence number of each key and node.
    fn last(&self) -> MutexGuard<'_, HashMap<(u64, u64), u64>> {
        lock(&self.0)
    }
}

/// Counts the units of an addition as doubtful on drop, unless it was answered. Each addition
/// counts once, however often its delta is pushed.
struct Doubtful<'a> {
    count: &'a Counter,
    units: u64,
}

impl Doubtful<'_> {
    fn was_added(mut self) {
        self.units = 0;
    }
}

impl Drop for Doubtful<'_> {
    fn drop(&mut self) {
        self.count.add(self.units);
    }
}

impl<I: Increment, Rule: Counted> CounterDriver<I, Rule> {
    /// Copies a delta.
    ///
    /// # Errors
    ///
    /// Fails if counters cannot run its rule.
    pub(super) fn delta(
        &self,
        delta: &Delta<'_, Rule>,
    ) -> Result<CounterDelta<Rule>, crate::Error> {
        self.known.learn(delta.rule())?;
        let set = self.counter_set(delta.policy(), delta.key(), delta.rule())?;
        let state = self.refusals.hasher().hash_one(delta.state_key());
        Ok(ResolvedDelta::new(delta, DeltaCounters { set, state }))
    }

    /// Adds deltas, each once at most, and reads the totals.
    pub(super) async fn sync(
        &self,
        deltas: Vec<Result<CounterDelta<Rule>, StoreError>>,
    ) -> Result<Vec<Result<Pulled<Rule::State>, StoreError>>, StoreError> {
        let known: Vec<_> = deltas.iter().flatten().collect();
        let adding = known.iter().map(|delta| self.add_once(delta)).collect();
        let added = concurrently(AT_ONCE, adding).await;
        let pulled = self.pull(&known).await;
        let answers = added.into_iter().zip(pulled);
        let answers: Vec<_> = answers.map(|(added, pulled)| added.and(pulled)).collect();
        self.close_answered(&known, &answers);
        let mut answers = answers.into_iter();
        let each = deltas.into_iter().filter_map(|delta| match delta {
            Ok(_) => answers.next(),
            Err(error) => Some(Err(error)),
        });
        each_delta(each.collect())
    }

    /// Adds a delta, unless it may have been added before.
    async fn add_once(&self, delta: &CounterDelta<Rule>) -> Result<(), StoreError> {
        if delta.units == 0 || !self.open_deltas.record(delta.at.state, delta.batch) {
            return Ok(());
        }
        let doubtful = Doubtful {
            count: &self.counts.doubtful,
            units: delta.units,
        };
        let charge = Charge::new(self.now().saturating_sub(delta.age), 0);
        self.settle(&delta.at.set, &charge, delta.units).await?;
        doubtful.was_added();
        self.refusals.forget(delta.at.set.hash);
        Ok(())
    }

    /// Reads the totals of the keys of deltas: together, or each by itself if one of them cannot be
    /// read.
    async fn pull(
        &self,
        deltas: &[&CounterDelta<Rule>],
    ) -> Vec<Result<Pulled<Rule::State>, StoreError>> {
        let now = self.now();
        let pulled = |(found, delta): (&SliceTotals, &CounterDelta<Rule>)| Pulled {
            at: now,
            state: found.state(&delta.rule, &delta.at.set),
        };
        let sets = deltas.iter().map(|delta| &delta.at.set);
        match self.read(sets, now).await {
            Ok(found) => {
                let deltas = deltas.iter().copied();
                found.iter().zip(deltas).map(pulled).map(Ok).collect()
            }
            Err(error) if error.is_timeout() || error.is_unavailable() || deltas.len() == 1 => {
                let failed = deltas.iter().map(|_| Err(error.duplicate()));
                failed.collect()
            }
            Err(_) => {
                let each = deltas.iter().map(async |delta| {
                    let found = self.read([&delta.at.set].into_iter(), now).await?;
                    Ok(pulled((found.first().ok_or_else(miscounted)?, delta)))
                });
                concurrently(AT_ONCE, each.collect()).await
            }
        }
    }

    /// Forgets the deltas of each key and node that were all answered. The others are pushed again
    /// together.
    fn close_answered<T>(&self, deltas: &[&CounterDelta<Rule>], answers: &[Result<T, StoreError>]) {
        let name = |delta: &CounterDelta<Rule>| (delta.at.state, delta.batch.node);
        let answers = deltas.iter().zip(answers);
        let failed: HashSet<_> = answers
            .filter(|(_, answer)| answer.is_err())
            .map(|(delta, _)| name(delta))
            .collect();
        for (hash, node) in deltas.iter().map(|delta| name(delta)) {
            if !failed.contains(&(hash, node)) {
                self.open_deltas.close(hash, node);
            }
        }
    }
}

/// Number of earlier periods whose counters are read. Nodes round the difference between their
/// clock and the store's to whole periods, so in the last period some nodes may not have counted
/// themselves yet.
const BEFORE: u64 = 2;
const KEEP: Duration = CountedNodes::KEEP.saturating_add(NodeCounts::PERIOD);

impl<I: Increment, Rule: Counted> CounterDriver<I, Rule> {
    /// Counts this node in a period of its clock. Each period has a counter for each policy, whose
    /// name begins with `prefix`.
    pub(super) async fn count_node(
        &self,
        prefix: &[u8],
        period: u64,
    ) -> Result<NodeCounts, StoreError> {
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

/// Converts a period by this node's clock into one by the store's clock. A period that is not the
/// node's current one stays as it is.
///
/// The difference is rounded to whole periods, so that each period of this node has one of the
/// store.
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
    fn a_delta_is_open_until_its_call_is_answered() {
        let open = OpenDeltas::default();
        let batch = |number| Batch { node: 1, number };
        assert!(open.record(7, batch(1)) && open.record(7, batch(2)));
        assert!(
            !open.record(7, batch(1)) && !open.record(7, batch(2)),
            "pushed again"
        );
        assert!(open.record(8, batch(1)) && open.record(7, Batch { node: 2, number: 1 }));
        open.close(7, 1);
        assert!(open.record(7, batch(1)), "it knows no more");
    }

    #[test]
    fn what_many_keys_leave_open_is_bounded() {
        let open = OpenDeltas::default();
        let batch = Batch { node: 1, number: 1 };
        for hash in 0..=OpenDeltas::MOST as u64 {
            assert!(open.record(hash, batch));
        }
        assert_eq!(open.last().len(), OpenDeltas::MOST);
        assert!(!open.record(0, batch));
    }

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
