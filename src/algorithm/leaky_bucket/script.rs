//! A queue in the numbers of a script.

use super::{
    LeakyBucket, LeakyBucketState,
    settle::{Freed, Place},
};
use crate::{
    algorithm::{
        credit::Credit,
        scripted::{Grid, MICRO, Part, Scripted, fitting, in_micros, instant, micros},
    },
    clock::Timestamp,
    error::Error,
};

impl LeakyBucket {
    /// The span of `level` units of a `gain` a microsecond, if it is not below zero.
    fn span_of(&self, level: i64, gain: i64) -> Option<Credit> {
        let units = Grid::of(self.rate).owed_of_script(level, gain)?;
        (units >= 0).then(|| self.span(units))
    }

    /// What a script keeps of a span: units and gain, rounded in favour of the limit.
    fn units_of(&self, span: Credit) -> [i64; 2] {
        Grid::of(self.rate).owed_to_script(span.units_up(self.rate.per_nano))
    }
}

/// A place that was given back is four numbers, which the script carries along: its departure in microseconds
/// and what is left of it in nanoseconds, and its span.
const PLACE: usize = 4;

impl Scripted for LeakyBucket {
    fn rule_parts(&self, parts: &mut Vec<Part>) -> Result<(), Error> {
        let (grid, capacity) = (Grid::of(self.rate), self.capacity.get());
        let [gain, price] = grid.numbers(capacity, self)?;
        let full = price as u128 * u128::from(capacity);
        let longest = match self.max_wait {
            None => full,
            Some(nanos) => {
                let wait = u128::from(nanos.get()) * u128::from(self.rate.per_nano);
                let wait = grid.units(wait);
                if wait < full {
                    // Else a backlog could lie between it and the next microsecond.
                    micros(nanos.get(), self)?;
                }
                full.min(wait)
            }
        };
        parts.push(vec![
            Self::KIND,
            gain,
            price,
            fitting(capacity.into(), self)?,
            fitting(longest, self)?,
        ]);
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<Part>]) -> Option<LeakyBucketState> {
        let Some([Some(part)]) = parts.first_chunk() else {
            return None;
        };
        let (&[Self::KIND, at, backlog, gain, sole], places) = part.split_first_chunk()? else {
            return None;
        };
        let mut freed = Freed::default();
        for place in places.chunks(PLACE) {
            let &[at, nanos, span, gain] = place else {
                return None;
            };
            let nanos = u64::try_from(nanos).ok().filter(|nanos| *nanos < MICRO)?;
            let departs = instant(at)?.as_nanos().checked_add(nanos)?;
            freed.0.push_back(Place {
                departs: Timestamp::from_nanos(departs),
                span: self.span_of(span, gain)?,
            });
        }
        if !freed.0.iter().is_sorted_by_key(|place| place.departs) || !matches!(sole, 0 | 1) {
            return None;
        }
        Some(LeakyBucketState {
            written_at: instant(at)?,
            freed: (!freed.0.is_empty()).then(|| Box::new(freed)),
            backlog: self.span_of(backlog, gain)?,
            sole: sole == 1,
        })
    }

    fn state_parts(&self, state: &LeakyBucketState, parts: &mut Vec<Option<Part>>) {
        let [backlog, gain] = self.units_of(state.backlog);
        let mut part = vec![
            Self::KIND,
            in_micros(state.written_at),
            backlog,
            gain,
            i64::from(state.sole),
        ];
        for place in state.freed.iter().flat_map(|freed| &freed.0) {
            let [span, gain] = self.units_of(place.span);
            let departs = place.departs.as_nanos();
            let (at, nanos) = (departs / MICRO, departs % MICRO);
            part.extend([at as i64, nanos as i64, span, gain]);
        }
        parts.push(Some(part));
    }
}
