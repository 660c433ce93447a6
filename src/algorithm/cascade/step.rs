//! Which bucket pays, and what all of them hold together.

use super::{
    Cascade, CascadeState, MOST,
    state::{Few, First},
};
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        token_bucket::{BucketLevel, TokenBucket, since},
    },
    clock::Timestamp,
    decision::{Charge, Cost, Decision, Told, Verdict},
};

impl Cascade {
    fn starts_at_rest(&self) -> bool {
        self.buckets.iter().all(TokenBucket::starts_at_rest)
    }

    /// The state, if it says something: a key that is granted its initial fills again is like a new one.
    #[inline]
    fn remembered<'a>(&self, state: Option<&'a CascadeState>, now: Timestamp) -> Option<First<'a>> {
        state
            .filter(|state| self.starts_at_rest() || now < self.forgettable_at(state))
            .map(|state| state.first(self.buckets.len()))
    }

    /// What is in the buckets.
    #[inline]
    fn levels(&self, state: Option<&CascadeState>, now: Timestamp) -> Levels {
        let known = self.remembered(state, now);
        let at = known.map_or(now, |known| now.max(known.written_at()));
        let (mut each, mut full_for) = ([0; MOST], [0; MOST]);
        for (n, bucket) in self.buckets.iter().enumerate() {
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

    /// The place of each bucket in the state, which is made to have one for each.
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
            let place = |(n, bucket): (usize, &TokenBucket)| match old {
                Some(old) => *old.bucket(n),
                None => bucket.state(bucket.initial_fill(now).level, now),
            };
            let places: Few<_> = self.buckets.iter().enumerate().map(place).collect();
            *state = Some(CascadeState::of(&places));
        }
        state.as_mut().map_or(&mut [], CascadeState::as_mut_slice)
    }

    #[inline]
    fn answer(&self, verdict: Verdict, now: Timestamp, cost: u64, levels: &Levels) -> Decision {
        let buckets = || self.buckets.iter().zip(&levels.each);
        // Later buckets are mostly fuller, and what they hold saves a division for those before.
        let remaining = buckets().rev().fold(0, |most, (bucket, &level)| {
            if bucket.holds(level, most + 1) {
                bucket.tokens(level)
            } else {
                most
            }
        });
        let rests = buckets()
            .zip(levels.full_for)
            .filter_map(|((bucket, &level), full_for)| {
                bucket.until_rest(level, levels.known.then_some(full_for))
            });
        let wait = |wait| since(now, levels.at, wait).unwrap_or_default();
        Decision::new(verdict, now, cost)
            .with_limit(self.capacity, self.quota)
            .with_told(Told {
                remaining,
                more_after: wait(self.soonest(levels, remaining + 1)),
                reset_after: wait(rests.max()),
            })
    }

    /// The answer to a cost that no bucket can pay.
    fn refuse(&self, now: Timestamp, cost: u64, asked: u64, levels: &Levels) -> Decision {
        let wait = self.soonest(levels, asked);
        self.answer(Verdict::Refuse, now, cost, levels)
            .with_retry_after(since(now, levels.at, wait))
    }

    /// Nanoseconds until some bucket can pay `cost`; `None` is never.
    #[inline]
    fn soonest(&self, levels: &Levels, cost: u64) -> Option<u128> {
        let buckets = self.buckets.iter().zip(&levels.each);
        buckets
            .filter_map(|(bucket, level)| bucket.until(*level, cost))
            .min()
    }

    /// Any rule and any state.
    #[inline]
    fn step_wide(&self, state: &mut Option<CascadeState>, now: Timestamp, cost: Cost) -> Step {
        let cost = cost.get();
        let mut levels = self.levels(state.as_ref(), now);
        let mut buckets = self.buckets.iter().zip(&mut levels.each).enumerate();
        let paid = buckets.find_map(|(class, (bucket, level))| {
            *level = bucket.pay(*level, cost)?;
            Some((class, bucket.state(*level, levels.at)))
        });
        if paid.is_none() && (levels.known || self.starts_at_rest() || cost > self.capacity.get()) {
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
}

/// What is in the buckets at one instant.
struct Levels {
    /// Each in units of its bucket's rate.
    each: [i128; MOST],
    /// For how many nanoseconds each has been as full as it gets; 0 where nobody asks.
    full_for: [u64; MOST],
    /// Never before the last write.
    at: Timestamp,
    /// Whether the key is, or will be once this is written.
    known: bool,
}

impl Algorithm for Cascade {
    type State = CascadeState;

    #[inline]
    fn step(&self, state: &mut Option<CascadeState>, now: Timestamp, cost: Cost) -> Step {
        self.step_metered(state, now, cost)
            .unwrap_or_else(|| self.step_wide(state, now, cost))
    }

    /// The class is that of a call of one unit.
    fn look(&self, state: Option<&CascadeState>, now: Timestamp) -> Decision {
        let levels = self.levels(state, now);
        let mut buckets = self.buckets.iter().zip(&levels.each);
        match buckets.position(|(bucket, level)| bucket.holds(*level, 1)) {
            Some(class) => self
                .answer(Verdict::Allow, now, 0, &levels)
                .with_class(class as u8),
            None => self.refuse(now, 0, 1, &levels),
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
        if let Some(corrected) = bucket.corrected(paid, charge, at, actual) {
            let known = known.is_some();
            self.places(state, now, known)[class] = corrected;
        }
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named("cascade") }
    }

    #[inline]
    fn forgettable_at(&self, state: &CascadeState) -> Timestamp {
        let (count, known) = (self.buckets.len(), state.as_slice());
        let mut latest = Timestamp::default();
        for (bucket, known) in self.buckets.iter().zip(known) {
            latest = latest.max(bucket.at_rest_from(known));
        }
        if known.len() < count {
            let added = state.first(count);
            for n in known.len()..count {
                latest = latest.max(self.buckets[n].at_rest_from(added.bucket(n)));
            }
        }
        latest
    }

    fn wanes(&self) -> bool {
        self.buckets.iter().any(TokenBucket::wanes)
    }

    fn class_bits(&self) -> u32 {
        let last = self.buckets.len() - 1;
        usize::BITS - last.leading_zeros()
    }
}
