//! Deltas of nodes that decide by themselves.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    counter_set::{CounterAsk, CounterSet},
    decide::miscounted,
    inner::Inner,
    slice_totals::SliceTotals,
};
use crate::{
    algorithm::Counted,
    decision::{Charge, Cost},
    store::{
        Batch, Delta, Error, Increment, Pulled,
        engine::{Counter, concurrently, each_delta},
    },
    time::Clock,
};

/// The most additions of a call that are in flight together.
const AT_ONCE: usize = 64;

/// A delta as its key meets it.
pub(super) struct CounterDelta<Rule> {
    ask: CounterAsk<Rule>,
    batch: Batch,
    age: Duration,
    units: u64,
}

/// The deltas that were sent, until their call is answered. Counters cannot tell a repetition from news, so none is added again.
#[derive(Default)]
pub(super) struct OpenDeltas(Mutex<HashMap<(u64, u64), u64>>);

impl OpenDeltas {
    /// Beyond that, deltas of further keys are added again, so that their units count twice at worst.
    const MOST: usize = 65_536;

    /// Notes a delta that is about to be added. Returns `false` if it may have been added before.
    fn note(&self, hash: u64, Batch { node, number }: Batch) -> bool {
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

    /// Forgets deltas that were answered, so that they will not be sent again.
    fn close(&self, hash: u64, node: u64) {
        self.last().remove(&(hash, node));
    }

    /// The last number of each key and node.
    fn last(&self) -> MutexGuard<'_, HashMap<(u64, u64), u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the units of an addition as doubtful on drop, unless it was answered. So each is counted once, however often its delta is sent again.
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

impl<I: Increment, Rule: Counted, K: Clock> Inner<I, Rule, K> {
    /// Returns a delta that outlives its call.
    ///
    /// # Errors
    ///
    /// Fails if counters cannot run its rule.
    pub(super) fn delta(
        &self,
        delta: &Delta<'_, Rule>,
    ) -> Result<CounterDelta<Rule>, crate::Error> {
        self.known.learn(delta.rule())?;
        let rule = delta.rule_for_key().unwrap_or_else(|| delta.rule().clone());
        let place = CounterSet::of(&self.prefix, delta.policy(), delta.key(), &rule)?;
        Ok(CounterDelta {
            ask: CounterAsk {
                hash: self.hints.hash(&place),
                added: 0,
                place,
                rule,
                cost: Cost::ONE,
            },
            batch: delta.batch(),
            age: delta.age(),
            units: delta.units(),
        })
    }

    /// Adds deltas, each once at most, and reads the totals.
    pub(super) async fn sync(
        &self,
        deltas: Vec<Result<CounterDelta<Rule>, Error>>,
    ) -> Result<Vec<Result<Pulled<Rule::State>, Error>>, Error> {
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
    async fn add_once(&self, delta: &CounterDelta<Rule>) -> Result<(), Error> {
        if delta.units == 0 || !self.open_deltas.note(delta.ask.hash, delta.batch) {
            return Ok(());
        }
        let doubtful = Doubtful {
            count: &self.counts.doubtful,
            units: delta.units,
        };
        let charge = Charge::new(self.now().saturating_sub(delta.age), 0);
        self.settle(&delta.ask.place, &charge, delta.units).await?;
        doubtful.was_added();
        self.hints.forget(delta.ask.hash);
        Ok(())
    }

    /// Reads the totals of the keys of deltas: together, or each by itself if one of them cannot be read.
    async fn pull(
        &self,
        deltas: &[&CounterDelta<Rule>],
    ) -> Vec<Result<Pulled<Rule::State>, Error>> {
        let asks: Vec<_> = deltas.iter().map(|delta| &delta.ask).collect();
        let now = self.now();
        let pulled = |(found, ask): (&SliceTotals, _)| Pulled {
            at: now,
            state: found.state(ask),
        };
        match self.read(&asks, now).await {
            Ok(found) => found.iter().zip(asks).map(pulled).map(Ok).collect(),
            Err(error) if error.is_timeout() || error.is_unavailable() || asks.len() == 1 => {
                let failed = asks.iter().map(|_| Err(error.duplicate()));
                failed.collect()
            }
            Err(_) => {
                let each = asks.into_iter().map(async |ask| {
                    let found = self.read(&[ask], now).await?;
                    Ok(pulled((found.first().ok_or_else(miscounted)?, ask)))
                });
                concurrently(AT_ONCE, each.collect()).await
            }
        }
    }

    /// Forgets the deltas of the keys and nodes all of whose deltas were answered. The others are sent again together.
    fn close_answered<T>(&self, deltas: &[&CounterDelta<Rule>], answers: &[Result<T, Error>]) {
        let name = |delta: &CounterDelta<Rule>| (delta.ask.hash, delta.batch.node);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_is_open_until_its_call_is_answered() {
        let open = OpenDeltas::default();
        let batch = |number| Batch { node: 1, number };
        assert!(open.note(7, batch(1)) && open.note(7, batch(2)));
        assert!(
            !open.note(7, batch(1)) && !open.note(7, batch(2)),
            "sent again"
        );
        assert!(open.note(8, batch(1)) && open.note(7, Batch { node: 2, number: 1 }));
        open.close(7, 1);
        assert!(open.note(7, batch(1)), "it knows no more");
    }

    #[test]
    fn what_many_keys_leave_open_is_bounded() {
        let open = OpenDeltas::default();
        let batch = Batch { node: 1, number: 1 };
        for hash in 0..=OpenDeltas::MOST as u64 {
            assert!(open.note(hash, batch));
        }
        assert_eq!(open.last().len(), OpenDeltas::MOST);
        assert!(!open.note(0, batch));
    }
}
