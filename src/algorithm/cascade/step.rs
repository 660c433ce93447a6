//! The bucket that pays, and the numbers of all buckets together.

use std::time::Duration;

use smallvec::SmallVec;

use super::{Cascade, MOST};
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        bucket::{Bucket, BucketLevel, Fill},
        packed::{BuiltIn, Form, InWords, StoreTime, TwoWords},
        ticks::after,
        token_bucket::TokenBucket,
    },
    decision::{Charge, Cost, Decision, Numbers, Verdict},
    time::Timestamp,
};

/// The state of a key under a [`Cascade`]: the level of each bucket, by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CascadeState(Buckets);

/// The levels of a cascade; up to two take no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Buckets {
    One(BucketLevel),
    Two([BucketLevel; 2]),
    More(Box<[BucketLevel]>),
}

/// A list with an item for each bucket of a cascade, which takes no allocation.
pub(super) type PerBucket<T> = SmallVec<[T; MOST]>;

impl CascadeState {
    /// Creates the state of at least one bucket.
    pub(super) fn of(buckets: &[BucketLevel]) -> Self {
        Self(match *buckets {
            [one] => Buckets::One(one),
            [one, two] => Buckets::Two([one, two]),
            _ => Buckets::More(buckets.into()),
        })
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[BucketLevel] {
        match &self.0 {
            Buckets::One(one) => std::slice::from_ref(one),
            Buckets::Two(two) => two,
            Buckets::More(more) => more,
        }
    }

    #[inline]
    fn as_mut_slice(&mut self) -> &mut [BucketLevel] {
        match &mut self.0 {
            Buckets::One(one) => std::slice::from_mut(one),
            Buckets::Two(two) => two,
            Buckets::More(more) => more,
        }
    }

    /// Returns the state as a rule of `count` buckets sees it.
    #[inline]
    fn first(&self, count: usize) -> First<'_> {
        let buckets = self.as_slice();
        let buckets = &buckets[..count.min(buckets.len())];
        let written_at = |bucket: &BucketLevel| bucket.written_at;
        let last = buckets.iter().map(written_at).max().unwrap_or_default();
        First {
            buckets,
            added: BucketLevel {
                written_at: last,
                level: 0,
            },
        }
    }
}

/// The first buckets of a state.
#[derive(Clone, Copy)]
struct First<'a> {
    buckets: &'a [BucketLevel],
    /// Stands for buckets that were added to the rule since: empty at the last write.
    added: BucketLevel,
}

impl First<'_> {
    /// Returns the instant of the last write to any of them.
    #[inline]
    fn written_at(&self) -> Timestamp {
        self.added.written_at
    }

    #[inline]
    fn bucket(&self, n: usize) -> &BucketLevel {
        self.buckets.get(n).unwrap_or(&self.added)
    }
}

/// The levels of all buckets at one instant.
struct BucketLevels {
    /// In ticks.
    each: [i64; MOST],
    /// The nanoseconds for which each has been full; 0 if that does not matter.
    full_for: [u64; MOST],
    /// Never before the last write.
    at: Timestamp,
    /// `true` if the key has a state, or will have one after this call.
    known: bool,
}

/// A rule, and the view of its buckets that the compiler knows best.
#[derive(Clone, Copy)]
struct CascadeView<'a> {
    rule: &'a Cascade,
    buckets: &'a [TokenBucket],
    /// `true` if all buckets start full.
    starts_full: bool,
    bucket: fn(&'a TokenBucket) -> Bucket<'a>,
}

impl Cascade {
    #[inline]
    fn view(&self) -> CascadeView<'_> {
        CascadeView {
            rule: self,
            buckets: &self.buckets,
            starts_full: self.starts_full,
            bucket: TokenBucket::bucket,
        }
    }

    /// Returns the view of a rule whose buckets, which are passed, all start full.
    #[inline]
    fn plain<'a>(&'a self, buckets: &'a [TokenBucket]) -> CascadeView<'a> {
        CascadeView {
            rule: self,
            buckets,
            starts_full: true,
            bucket: TokenBucket::plain,
        }
    }

    /// Steps under a rule whose buckets need not start full.
    fn step_any(&self, state: &mut Option<CascadeState>, now: Timestamp, cost: Cost) -> Step {
        self.view().step(state, now, cost)
    }
}

impl<'a> CascadeView<'a> {
    #[inline]
    fn buckets(&self) -> impl DoubleEndedIterator<Item = Bucket<'a>> + ExactSizeIterator {
        self.buckets.iter().map(self.bucket)
    }

    /// Returns the state, unless it has expired: then a key is granted its initial fills again.
    #[inline]
    fn remembered<'s>(&self, state: Option<&'s CascadeState>, now: Timestamp) -> Option<First<'s>> {
        state
            .filter(|state| self.starts_full || now < self.rule.forgettable_at(state))
            .map(|state| state.first(self.buckets.len()))
    }

    #[inline(always)]
    fn levels(&self, state: Option<&CascadeState>, now: Timestamp) -> BucketLevels {
        let known = self.remembered(state, now);
        let at = known.map_or(now, |known| now.max(known.written_at()));
        let mut levels = BucketLevels {
            each: [0; MOST],
            full_for: [0; MOST],
            at,
            known: known.is_some(),
        };
        for (n, bucket) in self.buckets().enumerate() {
            let fill = match &known {
                Some(known) => bucket.filled(known.bucket(n), at),
                None => bucket.initial_fill(at),
            };
            levels.each[n] = fill.level;
            levels.full_for[n] = fill.full_for.unwrap_or(0);
        }
        levels
    }

    /// Returns the level of each bucket in the state, after creating those that are missing.
    #[inline]
    fn stored_levels<'s>(
        &self,
        state: &'s mut Option<CascadeState>,
        now: Timestamp,
        known: bool,
    ) -> &'s mut [BucketLevel] {
        let count = self.buckets.len();
        let old = state.as_ref().filter(|_| known);
        if old.is_none_or(|old| old.as_slice().len() != count) {
            let old = old.map(|old| old.first(count));
            let level = |(n, bucket): (usize, Bucket<'_>)| match old {
                Some(old) => *old.bucket(n),
                None => BucketLevel {
                    written_at: now,
                    level: bucket.initial_fill(now).level,
                },
            };
            let levels: PerBucket<_> = self.buckets().enumerate().map(level).collect();
            *state = Some(CascadeState::of(&levels));
        }
        state.as_mut().map_or(&mut [], CascadeState::as_mut_slice)
    }

    #[inline(always)]
    fn answer(
        &self,
        verdict: Verdict,
        now: Timestamp,
        cost: u64,
        levels: &BucketLevels,
    ) -> Decision {
        let (mut remaining, mut rest) = (0, None);
        // Later buckets are mostly fuller, which saves a division for those before.
        for (n, bucket) in self.buckets().enumerate().rev() {
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
            .with_limit(self.rule.capacity, self.rule.quota)
            .with_numbers(Numbers {
                remaining,
                more_after: wait(self.soonest(levels, remaining + 1)),
                reset_after: wait(rest),
            })
    }

    /// Returns a refusal whose `retry_after` ends when some bucket can pay `asked`.
    #[inline(always)]
    fn refuse(&self, now: Timestamp, cost: u64, asked: u64, levels: &BucketLevels) -> Decision {
        let wait = self.soonest(levels, asked);
        let stalled = levels.at.nanos_since(now);
        self.answer(Verdict::Refuse, now, cost, levels)
            .with_retry_after(wait.map(|wait| after(stalled, wait)))
    }

    /// Returns the nanoseconds until some bucket can pay `cost`; `None` is never.
    #[inline]
    fn soonest(&self, levels: &BucketLevels, cost: u64) -> Option<u128> {
        let buckets = self.buckets().zip(&levels.each);
        buckets
            .filter_map(|(bucket, level)| bucket.until(*level, cost))
            .min()
    }

    // Always inlined, so that the compiler drops the parts that plain buckets do not need.
    #[inline(always)]
    fn step(&self, state: &mut Option<CascadeState>, now: Timestamp, cost: Cost) -> Step {
        let cost = cost.get();
        let mut levels = self.levels(state.as_ref(), now);
        let mut buckets = self.buckets().zip(&mut levels.each).enumerate();
        let paid = buckets.find_map(|(class, (bucket, level))| {
            *level = bucket.pay(*level, cost)?;
            let (written_at, level) = (levels.at, *level);
            Some((class, BucketLevel { written_at, level }))
        });
        let is_new = !levels.known && !self.starts_full;
        if paid.is_none() && (!is_new || cost > self.rule.capacity.get()) {
            return Step::Kept(self.refuse(now, cost, cost, &levels));
        }
        // A new key fills up from here on, also if it is refused.
        let stored = self.stored_levels(state, now, levels.known);
        levels.known = true;
        let Some((class, paid)) = paid else {
            return Step::Wrote(self.refuse(now, cost, cost, &levels));
        };
        stored[class] = paid;
        levels.full_for[class] = 0;
        let decision = self.answer(Verdict::Allow, now, cost, &levels);
        Step::Wrote(decision.with_class(class as u8))
    }

    fn look(&self, state: Option<&CascadeState>, now: Timestamp) -> Decision {
        let levels = self.levels(state, now);
        let mut buckets = self.buckets().zip(&levels.each);
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
        match &*self.buckets {
            // Of two, as most have, the compiler makes no loops.
            buckets @ [_, _] if self.starts_full => self.plain(buckets).step(state, now, cost),
            buckets if self.starts_full => self.plain(buckets).step(state, now, cost),
            _ => self.step_any(state, now, cost),
        }
    }

    /// The class is that of a call of one unit.
    fn look(&self, state: Option<&CascadeState>, now: Timestamp) -> Decision {
        self.view().look(state, now)
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
        let counted = self.view();
        let known = counted.remembered(state.as_ref(), now);
        let at = known.map_or(now, |known| now.max(known.written_at()));
        let paid = known.as_ref().map(|known| known.bucket(class));
        if let Some(corrected) = bucket.bucket().corrected(paid, charge, at, actual) {
            let known = known.is_some();
            counted.stored_levels(state, now, known)[class] = corrected;
        }
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named(Self::NAME) }
    }

    #[inline]
    fn forgettable_at(&self, state: &CascadeState) -> Timestamp {
        let known = state.as_slice();
        let rest = |(bucket, known): (&TokenBucket, &BucketLevel)| bucket.at_rest_from(known);
        let rests = self.buckets.iter().zip(known).map(rest);
        let latest = rests.max().unwrap_or_default();
        // Mostly there are none.
        let added = self.buckets.get(known.len()..).unwrap_or_default();
        added.iter().fold(latest, |latest, bucket| {
            let known = state.first(self.buckets.len());
            latest.max(bucket.at_rest_from(known.bucket(self.buckets.len())))
        })
    }

    fn grant_slack(&self) -> Option<u64> {
        self.buckets.first().and_then(TokenBucket::grant_slack)
    }

    fn may_shrink_when_idle(&self) -> bool {
        self.buckets.iter().any(TokenBucket::may_shrink_when_idle)
    }

    fn class_bits(&self) -> u32 {
        let last = self.buckets.len() - 1;
        usize::BITS - last.leading_zeros()
    }

    #[inline]
    fn built_in(&self) -> BuiltIn<'_, CascadeState> {
        BuiltIn::new(Form::Either(self), self)
    }
}

impl InWords<CascadeState> for Cascade {
    /// Returns the instants at which two buckets were last empty; `None` for other numbers of
    /// buckets.
    #[inline]
    fn write_words(&self, state: &CascadeState, now: StoreTime) -> Option<TwoWords> {
        match (&*self.buckets, state.as_slice()) {
            ([a, b], [a_level, b_level]) => {
                Some([a.pack_level(a_level, now)?, b.pack_level(b_level, now)?])
            }
            _ => None,
        }
    }

    #[inline]
    fn read_words(&self, words: TwoWords, now: StoreTime) -> Option<CascadeState> {
        let level = |packed| BucketLevel::unpack(packed, now);
        Some(CascadeState(Buckets::Two(words.map(level))))
    }
}
