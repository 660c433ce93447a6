//! Which bucket pays, and the numbers of all of them together.

use std::time::Duration;

use super::rule::{Cascade, CascadeState, Few, First, MOST};
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        ticks::{Width, after},
        token_bucket::{Bucket, BucketLevel, Fill, TokenBucket},
    },
    clock::Timestamp,
    decision::{Charge, Cost, Decision, Numbers, Verdict},
};

/// The levels of all buckets at one instant.
struct Levels<N> {
    /// Each in units of its bucket's rate.
    each: [N; MOST],
    /// How many nanoseconds each has been as full as it gets; 0 if that does not matter.
    full_for: [u64; MOST],
    /// Never before the last write.
    at: Timestamp,
    /// Whether the key is known, or will be after this call.
    known: bool,
}

impl Cascade {
    fn starts_full(&self) -> bool {
        self.buckets.iter().all(TokenBucket::starts_full)
    }

    /// Returns the state, unless it has expired: then a key is granted its initial fills again.
    #[inline]
    fn remembered<'a>(&self, state: Option<&'a CascadeState>, now: Timestamp) -> Option<First<'a>> {
        state
            .filter(|state| self.starts_full() || now < self.forgettable_at(state))
            .map(|state| state.first(self.buckets.len()))
    }

    #[inline]
    fn counted<N: Width>(
        &self,
    ) -> impl DoubleEndedIterator<Item = Bucket<'_, N>> + ExactSizeIterator {
        self.buckets.iter().map(TokenBucket::bucket)
    }

    #[inline]
    fn levels<N: Width>(&self, state: Option<&CascadeState>, now: Timestamp) -> Levels<N> {
        let known = self.remembered(state, now);
        let at = known.map_or(now, |known| now.max(known.written_at()));
        let (mut each, mut full_for) = ([N::ZERO; MOST], [0; MOST]);
        for (n, bucket) in self.counted().enumerate() {
            let fill = match &known {
                Some(known) => bucket.filled(known.bucket(n), at),
                None => bucket.initial_fill(at),
            };
            each[n] = fill.level;
            full_for[n] = fill.full_for.unwrap_or(0);
        }
        Levels {
            each,
            full_for,
            at,
            known: known.is_some(),
        }
    }

    /// Returns the place of each bucket in the state, after creating those that are missing.
    #[inline]
    fn places<'a>(
        &self,
        state: &'a mut Option<CascadeState>,
        now: Timestamp,
        known: bool,
    ) -> &'a mut [BucketLevel] {
        let count = self.buckets.len();
        let old = state.as_ref().filter(|_| known);
        if old.is_none_or(|old| old.as_slice().len() != count) {
            let old = old.map(|old| old.first(count));
            let place = |(n, bucket): (usize, Bucket<'_, i128>)| match old {
                Some(old) => *old.bucket(n),
                None => bucket.state(bucket.initial_fill(now).level, now),
            };
            let places: Few<_> = self.counted().enumerate().map(place).collect();
            *state = Some(CascadeState::of(&places));
        }
        state.as_mut().map_or(&mut [], CascadeState::as_mut_slice)
    }

    #[inline]
    fn answer<N: Width>(
        &self,
        verdict: Verdict,
        now: Timestamp,
        cost: u64,
        levels: &Levels<N>,
    ) -> Decision {
        let (mut remaining, mut rest) = (0, None);
        // Later buckets are mostly fuller, which saves a division for those before.
        for (n, bucket) in self.counted().enumerate().rev() {
            let (level, full_for) = (levels.each[n], levels.full_for[n]);
            if bucket.pay(level, remaining + 1).is_some() {
                remaining = bucket.tokens(level);
            }
            let fill = Fill {
                level,
                at: levels.at,
                full_for: levels.known.then_some(full_for),
            };
            rest = rest.max(bucket.until_rest(&fill));
        }
        let stalled = levels.at.nanos_since(now);
        let wait = |wait: Option<u128>| wait.map_or(Duration::ZERO, |wait| after(stalled, wait));
        Decision::new(verdict, now, cost)
            .with_limit(self.capacity, self.quota)
            .with_numbers(Numbers {
                remaining,
                more_after: wait(self.soonest(levels, remaining + 1)),
                reset_after: wait(rest),
            })
    }

    /// Refuses a call that can come again when some bucket can pay `asked`.
    fn refuse<N: Width>(
        &self,
        now: Timestamp,
        cost: u64,
        asked: u64,
        levels: &Levels<N>,
    ) -> Decision {
        let wait = self.soonest(levels, asked);
        let stalled = levels.at.nanos_since(now);
        self.answer(Verdict::Refuse, now, cost, levels)
            .with_retry_after(wait.map(|wait| after(stalled, wait)))
    }

    /// Returns the nanoseconds until some bucket can pay `cost`; `None` is never.
    #[inline]
    fn soonest<N: Width>(&self, levels: &Levels<N>, cost: u64) -> Option<u128> {
        let buckets = self.counted().zip(&levels.each);
        buckets
            .filter_map(|(bucket, level)| bucket.until(*level, cost))
            .min()
    }

    #[inline]
    fn step_in<N: Width>(
        &self,
        state: &mut Option<CascadeState>,
        now: Timestamp,
        cost: Cost,
    ) -> Step {
        let cost = cost.get();
        let mut levels = self.levels::<N>(state.as_ref(), now);
        let mut buckets = self.counted().zip(&mut levels.each).enumerate();
        let paid = buckets.find_map(|(class, (bucket, level))| {
            *level = bucket.pay(*level, cost)?;
            Some((class, bucket.state(*level, levels.at)))
        });
        if paid.is_none() && (levels.known || self.starts_full() || cost > self.capacity.get()) {
            return Step::Kept(self.refuse(now, cost, cost, &levels));
        }
        // A new key fills up from here on, also if it is refused.
        let places = self.places(state, now, levels.known);
        levels.known = true;
        let Some((class, paid)) = paid else {
            return Step::Wrote(self.refuse(now, cost, cost, &levels));
        };
        places[class] = paid;
        levels.full_for[class] = 0;
        let decision = self.answer(Verdict::Allow, now, cost, &levels);
        Step::Wrote(decision.with_class(class as u8))
    }

    fn look_in<N: Width>(&self, state: Option<&CascadeState>, now: Timestamp) -> Decision {
        let levels = self.levels::<N>(state, now);
        let mut buckets = self.counted().zip(&levels.each);
        match buckets.position(|(bucket, level)| bucket.pay(*level, 1).is_some()) {
            Some(class) => self
                .answer(Verdict::Allow, now, 0, &levels)
                .with_class(class as u8),
            None => self.refuse(now, 0, 1, &levels),
        }
    }
}

impl Algorithm for Cascade {
    type State = CascadeState;

    #[inline]
    fn step(&self, state: &mut Option<CascadeState>, now: Timestamp, cost: Cost) -> Step {
        if self.is_narrow {
            self.step_in::<i64>(state, now, cost)
        } else {
            self.step_in::<i128>(state, now, cost)
        }
    }

    /// The class is that of a call of one unit.
    fn look(&self, state: Option<&CascadeState>, now: Timestamp) -> Decision {
        if self.is_narrow {
            self.look_in::<i64>(state, now)
        } else {
            self.look_in::<i128>(state, now)
        }
    }

    /// Corrects the bucket that paid, as a [`TokenBucket`] is corrected.
    fn settle(
        &self,
        state: &mut Option<CascadeState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        let class = charge.class as usize;
        let Some(bucket) = self.buckets.get(class) else {
            return;
        };
        let known = self.remembered(state.as_ref(), now);
        let at = known.map_or(now, |known| now.max(known.written_at()));
        let paid = known.as_ref().map(|known| known.bucket(class));
        if let Some(corrected) = bucket.bucket().corrected(paid, charge, at, actual) {
            let known = known.is_some();
            self.places(state, now, known)[class] = corrected;
        }
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named(Self::NAME) }
    }

    #[inline]
    fn forgettable_at(&self, state: &CascadeState) -> Timestamp {
        let known = state.first(self.buckets.len());
        let buckets = self.buckets.iter().enumerate();
        let rests = buckets.map(|(n, bucket)| bucket.at_rest_from(known.bucket(n)));
        rests.max().unwrap_or_default()
    }

    fn wanes(&self) -> bool {
        self.buckets.iter().any(TokenBucket::wanes)
    }

    fn class_bits(&self) -> u32 {
        let last = self.buckets.len() - 1;
        usize::BITS - last.leading_zeros()
    }
}
