//! Places that were given back, and the correction of charges.

use std::collections::VecDeque;

use super::step::{Backlog, LeakyBucketState, Queue};
use crate::{
    algorithm::ticks::{PARTS_PER_NANO, Ticks},
    decision::Charge,
    time::Timestamp,
};

/// The most places that are remembered, so that no number of clients that hang up makes a state large, or slow to correct.
const MOST: usize = 16;

/// Places before the last one that were given back and have not passed, in the order of their departures. Places that touch
/// are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Freed(pub(super) VecDeque<Place>);

/// A place in the queue: the time from its departure to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) departs: Timestamp,
    pub(super) span: Ticks,
}

impl Freed {
    /// Returns the place before `index`, and for how many nanoseconds it lasts after `departs`. Departures are rounded up, so 0 and
    /// 1 mean that it ends there.
    fn before(&self, index: usize, departs: Timestamp) -> Option<(Place, i128)> {
        let place = *self.0.get(index.checked_sub(1)?)?;
        let nanos = departs.nanos_since(place.departs);
        Some((place, place.span.nanos_up() - i128::from(nanos)))
    }

    /// Unites the place at `index` with the one before it, if it begins where that ends. `gap`, the least time between two places
    /// that do not touch, must be two nanoseconds.
    fn unite(&mut self, index: usize, gap: i128) {
        let Some(second) = self.0.get(index).copied() else {
            return;
        };
        let Some((first, 0 | 1)) = self.before(index, second.departs) else {
            return;
        };
        if gap < 2 * PARTS_PER_NANO {
            return;
        }
        let parts = first.span.parts().saturating_add(second.span.parts());
        let span = Ticks::from_parts(parts);
        // Very long spans are whole nanoseconds.
        if span.parts() == parts {
            self.0[index - 1].span = span;
            self.0.remove(index);
        }
    }

    /// Drops places that have passed, which make no difference any more.
    fn pass(&mut self, now: Timestamp) {
        let end = |place: &Place| i128::from(place.departs.as_nanos()) + place.span.nanos_up();
        while let Some(first) = self.0.front() {
            if end(first) > i128::from(now.as_nanos()) {
                break;
            }
            self.0.pop_front();
        }
    }
}

impl Queue<'_, i128> {
    /// Lengthens the backlog by force.
    pub(super) fn take(&self, state: &mut Option<LeakyBucketState>, now: Timestamp, more: u64) {
        if more == 0 {
            return;
        }
        let Backlog { units, at } = self.backlog(state.as_ref(), now);
        let backlog = self.units.span(units).parts();
        *state = Some(LeakyBucketState {
            written_at: at,
            // A forced cost is never given back, and so no place before it.
            freed: None,
            backlog: Ticks::from_parts(backlog.saturating_add(self.units.price_in_parts(more))),
            sole: false,
        });
    }

    /// Corrects a charge to the `actual` cost, which is less. Returns `true` if its place is one too many to be remembered.
    pub(super) fn give_back(
        &self,
        state: &mut LeakyBucketState,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> bool {
        let Backlog { units, at } = self.backlog(Some(state), now);
        if units == 0 {
            // Time has restored all.
            state.freed = None;
            return false;
        }
        if let Some(freed) = &mut state.freed {
            freed.pass(at);
        }
        let price = self.units.price_in_parts(charge.cost);
        // The beginning of the charge's place if it is the last one, counted from the last write.
        let place = state.backlog.parts() - price;
        let last = self.departure(state, place);
        let sole = state.sole && charge.at == state.written_at;
        // Otherwise several calls depart in a nanosecond.
        let apart = self.units.price_in_parts(1) >= PARTS_PER_NANO;
        let told = charge.delay.map(|delay| {
            i128::from(charge.at.as_nanos()).saturating_add_unsigned(delay.as_nanos())
        });
        let mut forgets = false;
        match told {
            None if sole => self.shorten(state, place, actual),
            Some(told) if told == last && (apart || sole) => self.shorten(state, place, actual),
            Some(told) if told < last && apart && actual == 0 => {
                forgets = !self.remembers(state, told, price, at);
            }
            _ => {}
        }
        state.freed = state.freed.take().filter(|freed| !freed.0.is_empty());
        forgets
    }

    /// Returns when a place departs that begins `parts` parts of a tick after the last write, in nanoseconds rounded up.
    fn departure(&self, state: &LeakyBucketState, parts: i128) -> i128 {
        i128::from(state.written_at.as_nanos()) - (-parts).div_euclid(PARTS_PER_NANO)
    }

    /// Remembers a place before the last one, if it has not departed. Returns `false` if it is one too many.
    fn remembers(
        &self,
        state: &mut LeakyBucketState,
        departs: i128,
        price: i128,
        now: Timestamp,
    ) -> bool {
        // A departure beyond all instants is not remembered.
        let departs = u64::try_from(departs).map_or(now, Timestamp::from_nanos);
        let freed = state.freed.get_or_insert_default();
        // Also charges that were never made are no more than fit.
        let most = MOST.min(usize::try_from(self.rule.capacity.get()).unwrap_or(MOST));
        let Err(index) = freed
            .0
            .binary_search_by_key(&departs, |place| place.departs)
        else {
            return true;
        };
        // One that lies within another was remembered before.
        let is_known = freed
            .before(index, departs)
            .is_some_and(|(_, after)| after > 1);
        if departs <= now || is_known {
            return true;
        }
        let span = Ticks::from_parts(price);
        // There are more after the queue became shorter.
        let most = most.max(freed.0.len());
        freed.0.insert(index, Place { departs, span });
        let gap = self.units.price_in_parts(1);
        freed.unite(index + 1, gap);
        freed.unite(index, gap);
        let is_remembered = freed.0.len() <= most;
        if !is_remembered {
            freed.0.remove(index);
        }
        is_remembered
    }

    /// Leaves `actual` of the last place; if that is nothing, also nothing of those before it that were given back.
    fn shorten(&self, state: &mut LeakyBucketState, place: i128, actual: u64) {
        let mut end = place + self.units.price_in_parts(actual);
        let mut freed = state.freed.take();
        while let Some(before) = freed.as_ref().and_then(|freed| freed.0.back()) {
            let begin = end - before.span.parts();
            let is_next = self.departure(state, begin) == i128::from(before.departs.as_nanos());
            if actual > 0 || !is_next {
                break;
            }
            end = begin;
            freed.as_mut().and_then(|freed| freed.0.pop_back());
        }
        state.freed = freed;
        state.backlog = Ticks::from_parts(end.max(0));
        state.sole = false;
    }
}
