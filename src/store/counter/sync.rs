//! Deltas of nodes that decide by themselves.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    counter_set::{CounterAsk, CounterSet},
    inner::Inner,
    slice_totals::SliceTotals,
};
use crate::{
    algorithm::Counted,
    decision::{Charge, Cost},
    store::{Batch, Delta, Error, Increment, Pulled},
    time::Clock,
};

/// A delta as its key meets it.
pub(super) struct CounterDelta<Rule> {
    ask: CounterAsk<Rule>,
    batch: Batch,
    age: Duration,
    units: u64,
}

/// The deltas of which it is not known that they were added. Counters cannot tell a repetition from news, so none is added again.
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

    /// Forgets the deltas of a call that was answered, so that they will not be sent again.
    fn close(&self, hash: u64, Batch { node, .. }: Batch) {
        self.last().remove(&(hash, node));
    }

    /// The last number of each key and node.
    fn last(&self) -> MutexGuard<'_, HashMap<(u64, u64), u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<I: Increment, Rule: Counted, K: Clock> Inner<I, Rule, K> {
    pub(super) fn deltas(
        &self,
        deltas: &[Delta<'_, Rule>],
    ) -> Result<Vec<CounterDelta<Rule>>, crate::Error> {
        let owned = |delta: &Delta<'_, Rule>| {
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
        };
        deltas.iter().map(owned).collect()
    }

    /// Adds deltas, each once at most, and reads the totals.
    pub(super) async fn sync(
        &self,
        deltas: &[CounterDelta<Rule>],
    ) -> Result<Vec<Pulled<Rule::State>>, Error> {
        for delta in deltas.iter().filter(|delta| delta.units > 0) {
            if self.open_deltas.note(delta.ask.hash, delta.batch) {
                let charge = Charge::new(self.now().saturating_sub(delta.age), 0);
                self.settle(&delta.ask.place, &charge, delta.units).await?;
                self.hints.forget(delta.ask.hash);
            } else {
                self.counts.doubtful.add(delta.units);
            }
        }
        let now = self.now();
        let asks: Vec<_> = deltas.iter().map(|delta| &delta.ask).collect();
        let found = self.read(&asks, now).await?;
        for delta in deltas {
            self.open_deltas.close(delta.ask.hash, delta.batch);
        }
        let pulled = |(found, ask): (&SliceTotals, _)| Pulled {
            at: now,
            state: found.state(ask),
        };
        Ok(found.iter().zip(asks).map(pulled).collect())
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
        open.close(7, batch(2));
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
