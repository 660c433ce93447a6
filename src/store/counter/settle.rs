//! Corrections and resets.

use super::{counter_set::CounterSet, inner::Inner};
use crate::{
    algorithm::Counted,
    decision::Charge,
    store::{Error, Increment},
    time::Clock,
};

/// The most that one correction adds: far above any limit, and too little for a counter to reach its end.
const MOST: u64 = 1 << 48;

impl<I: Increment, Rule: Counted, K: Clock> Inner<I, Rule, K> {
    /// Corrects a charge in the counter that was charged, as long as that counts.
    pub(super) async fn settle(
        &self,
        place: &CounterSet,
        charge: &Charge,
        actual: u64,
    ) -> Result<(), Error> {
        let now = self.now();
        let slice = place.slicing.slice(charge.at);
        let is_near = charge.at <= now.saturating_add(self.apart);
        if now >= place.slicing.over(slice) || !is_near || actual == charge.cost {
            return Ok(());
        }
        let counter = place.counter(slice);
        match charge.cost.checked_sub(actual) {
            Some(less) => self.increment.subtract(&counter, less).await,
            None => {
                let more = (actual - charge.cost).min(MOST);
                let keep = self.keep(place, slice);
                self.increment
                    .add(&counter, more, keep, &[])
                    .await
                    .map(drop)
            }
        }
    }

    /// Removes all counters of these sets that may matter now to any host.
    pub(super) async fn reset(&self, places: &[CounterSet]) -> Result<(), Error> {
        let now = self.now();
        let counters: Vec<_> = places
            .iter()
            .flat_map(|place| {
                let slices = place.all(now, self.apart);
                slices.map(|slice| place.counter(slice))
            })
            .collect();
        self.increment.remove(&counters).await
    }
}
