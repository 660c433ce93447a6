//! Rules whose states are two buckets, each as one word: the tick at which it was last empty.

use std::time::Duration;

use super::{
    bucket::{Bucket, Fill, more_after, remaining},
    cascade::Cascade,
    packed::{PackedState, StoreTime, TwoWords},
    three_color::ThreeColor,
    ticks::after_ticks,
    token_bucket::TokenBucket,
};
use crate::decision::{
    Compute, Cost, Decision, Deferred, DeferredState, Position, RuleLimit, Verdict,
};

/// A rule whose states are two buckets with packed states.
#[derive(Clone, Copy, Debug)]
pub struct TwoBuckets<'a> {
    buckets: [&'a TokenBucket; 2],
    spends: Spends<'a>,
}

/// The buckets that a call spends from.
#[derive(Clone, Copy, Debug)]
enum Spends<'a> {
    /// From both or from neither.
    Both,
    /// From the first one that holds the cost.
    Either(&'a Cascade),
    /// From the second one, and from the first one if that holds the cost.
    Marked(&'a ThreeColor),
}

impl<'a> TwoBuckets<'a> {
    /// Creates the rule of a pair of token buckets; `None` if their states are not packed.
    #[inline]
    pub(super) fn both(a: &'a TokenBucket, b: &'a TokenBucket) -> Option<Self> {
        Self::of([a, b], Spends::Both)
    }

    /// Creates the rule of a cascade of two buckets; `None` for other cascades, or if the states
    /// are not packed.
    #[inline]
    pub(super) fn either(rule: &'a Cascade) -> Option<Self> {
        match rule.buckets() {
            [a, b] => Self::of([a, b], Spends::Either(rule)),
            _ => None,
        }
    }

    /// Creates the rule of a marker; `None` if its states are not packed.
    #[inline]
    pub(super) fn marked(rule: &'a ThreeColor) -> Option<Self> {
        Self::of([&rule.committed, &rule.peak], Spends::Marked(rule))
    }

    #[inline]
    fn of(buckets: [&'a TokenBucket; 2], spends: Spends<'a>) -> Option<Self> {
        let are_packed = buckets.iter().all(|bucket| bucket.is_packed());
        are_packed.then_some(Self { buckets, spends })
    }

    /// Spends `cost` if the rule allows it; returns the new words if so.
    // Always inlined: most callers read only a part of the decision, and the compiler drops the
    // rest.
    #[inline(always)]
    pub(crate) fn step(
        self,
        words: TwoWords,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<TwoWords>, Decision) {
        let levels = self.levels(words, now);
        // A bucket that was not spent from may be in debt.
        let word = |level: i64| now.packed().shifted(-level);
        let (left, decision) = match self.spends {
            Spends::Both => self.step_both(levels, now, cost),
            Spends::Marked(rule) => rule.step_levels(levels, now.at(), cost),
            Spends::Either(rule) => {
                let (paid, decision) = self.step_either(rule, levels, now, cost);
                let words = match paid {
                    Some((0, level)) => Some([word(level), words[1]]),
                    Some((_, level)) => Some([words[0], word(level)]),
                    None => None,
                };
                return (words, decision);
            }
        };
        (left.map(|levels| levels.map(word)), decision)
    }

    /// Returns the tick from which on both are full.
    #[inline]
    pub(crate) fn end(self, [a, b]: TwoWords) -> u64 {
        let end =
            |word: PackedState, bucket: &TokenBucket| word.get() + bucket.full_in_ticks() as u64;
        end(a, self.buckets[0]).max(end(b, self.buckets[1]))
    }

    /// Returns the levels in ticks.
    #[inline(always)]
    fn levels(self, words: TwoWords, now: StoreTime) -> [i64; 2] {
        let level = |n: usize| {
            let held = now.packed().since(words[n]);
            held.min(self.buckets[n].full_in_ticks())
        };
        [level(0), level(1)]
    }

    #[inline(always)]
    fn bucket(self, n: usize) -> Bucket<'a> {
        self.buckets[n].plain()
    }

    /// Decides as [both decisions together](Decision::and).
    #[inline(always)]
    fn step_both(
        self,
        levels: [i64; 2],
        now: StoreTime,
        cost: Cost,
    ) -> (Option<[i64; 2]>, Decision) {
        let pay = |n: usize| self.bucket(n).pay(levels[n], cost.get());
        let (Some(in_a), Some(in_b)) = (pay(0), pay(1)) else {
            return (None, self.refuse_both(levels, now, cost));
        };
        let ([a, b], levels) = (self.buckets, [in_a, in_b]);
        let limit = |bucket: &TokenBucket| RuleLimit::new(bucket.most, bucket.quota());
        let decision = Decision::new(Verdict::Allow, now.at(), cost.get())
            .with_rule_limit(Some(limit(a).and(limit(b))))
            .with_deferred(self.deferred(levels, &OF_BOTH));
        (Some(levels), decision)
    }

    fn refuse_both(self, levels: [i64; 2], now: StoreTime, cost: Cost) -> Decision {
        let each = |n: usize| {
            let fill = Fill::of_plain(levels[n], now.at());
            self.bucket(n).refuse_or_look(&fill, now.at(), cost)
        };
        each(0).and(each(1), 0)
    }

    /// Spends from one bucket. Returns its index and the level that is left in it; the word of the
    /// other one stays.
    #[inline(always)]
    fn step_either(
        self,
        rule: &Cascade,
        mut levels: [i64; 2],
        now: StoreTime,
        cost: Cost,
    ) -> (Option<(usize, i64)>, Decision) {
        let cost = cost.get();
        let pay = |n: usize| self.bucket(n).pay(levels[n], cost);
        let paid = match pay(0) {
            Some(level) => Some((0, level)),
            None => pay(1).map(|level| (1, level)),
        };
        let decision = |verdict, levels| {
            Decision::new(verdict, now.at(), cost)
                .with_limit(rule.capacity, rule.quota())
                .with_deferred(self.deferred(levels, &OF_EITHER))
        };
        let Some((class, level)) = paid else {
            let wait = soonest(&self.deferred(levels, &OF_EITHER).state, cost);
            let refusal = decision(Verdict::Refuse, levels);
            return (None, refusal.with_retry_after(wait));
        };
        levels[class] = level;
        let decision = decision(Verdict::Allow, levels).with_class(class as u8);
        (paid, decision)
    }

    #[inline(always)]
    fn deferred(self, levels: [i64; 2], compute: &'static Compute) -> Deferred {
        let numbers = |n: usize| self.bucket(n).above_floor(levels[n]);
        let ([a, b, c], [d, e, f]) = (numbers(0), numbers(1));
        let state = [a, b, c, d, e, f];
        Deferred { state, compute }
    }
}

/// Returns the deferred state of each bucket alone.
#[inline]
fn each(&[a, b, c, d, e, f]: &DeferredState) -> [DeferredState; 2] {
    [[a, b, c, 0, 0, 0], [d, e, f, 0, 0, 0]]
}

/// Returns what the bucket that fills last lacks, in ticks.
fn lacking(state: &DeferredState) -> u64 {
    let lacking = |[level, _, full, ..]: DeferredState| full.wrapping_sub(level);
    let [a, b] = each(state).map(lacking);
    a.max(b)
}

/// Returns the wait until some bucket holds `cost`, which none does now; `None` is never.
fn soonest(state: &DeferredState, cost: u64) -> Option<Duration> {
    let wait = |[level, price, full, ..]: DeferredState| {
        let wanted = cost.checked_mul(price).filter(|wanted| *wanted <= full)?;
        Some(after_ticks(0, wanted.wrapping_sub(level)))
    };
    let [a, b] = each(state).map(wait);
    a.into_iter().chain(b).min()
}

/// Computes the numbers of two buckets that are spent together.
const OF_BOTH: Compute = Compute {
    remaining: |state| {
        let [a, b] = each(state);
        remaining(&a).min(remaining(&b))
    },
    reset_after: |state| after_ticks(0, lacking(state)),
    more_after: |state, least| {
        let [a, b] = each(state);
        // Right after a charge, neither bucket is full.
        let more = |state: &DeferredState| match remaining(state) > least {
            true => Duration::ZERO,
            false => more_after(state, least),
        };
        more(&a).max(more(&b))
    },
    position: |_, _| Some(Position::SEVERAL),
};

/// Computes the numbers of two buckets of which either pays.
const OF_EITHER: Compute = Compute {
    remaining: |state| {
        let [a, b] = each(state);
        remaining(&a).max(remaining(&b))
    },
    reset_after: |state| after_ticks(0, lacking(state)),
    more_after: |state, most| soonest(state, most + 1).unwrap_or_default(),
    position: |_, _| None,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        algorithm::{Algorithm, packed::InMemory},
        decision::Charge,
        quota::Quota,
        time::Timestamp,
    };

    const START: u64 = 1_800_000_000_000_000_000;

    #[derive(Clone, Debug)]
    enum Op {
        Wait(u64),
        Spend(u64),
        /// Corrects a charge of one unit, into debt if it is many.
        Settle(u64),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let wait = prop_oneof![0..1_000_u64, 0..3_000_000_000_u64, 0..1_u64 << 50];
        let op = prop_oneof![
            2 => wait.prop_map(Op::Wait),
            6 => (1..12_u64).prop_map(Op::Spend),
            1 => (0..30_u64).prop_map(Op::Settle),
        ];
        prop::collection::vec(op, 1..60)
    }

    fn bucket() -> impl Strategy<Value = TokenBucket> {
        let periods = prop_oneof![Just(1_000_000_000_u64), 1..100_000_000_000_u64];
        (1..50_u64, periods, 1..20_u64, 0..10_u64)
            .prop_map(|(amount, period, burst, kept)| {
                let quota = Quota::new(amount, Duration::from_nanos(period));
                TokenBucket::new(quota)
                    .burst(burst)
                    .keep_free(kept.min(burst - 1))
            })
            .prop_filter("packed states", TokenBucket::is_packed)
    }

    /// Steps on two words, and on the state itself.
    fn check<A: Algorithm>(rule: &A, ops: &[Op]) -> Result<(), TestCaseError> {
        let (mut state, mut words, mut at) = (None, None, START);
        for op in ops {
            let now = StoreTime::new(
                Timestamp::from_nanos(at),
                Timestamp::from_nanos(START - 1_000),
            );
            match *op {
                Op::Wait(nanos) => at += nanos,
                Op::Spend(cost) => {
                    let cost = Cost::new(cost).unwrap();
                    let exact = rule.step(&mut state, now.at(), cost);
                    if let Some(known) = words {
                        let buckets = rule.two_buckets().unwrap();
                        let (written, decision) = buckets.step(known, now, cost);
                        prop_assert_eq!(decision, exact.decision());
                        let is_charged = decision.is_admitted();
                        prop_assert_eq!(written.is_some(), is_charged);
                        words = written.or(words);
                    } else {
                        words = state
                            .as_ref()
                            .and_then(|state| rule.to_two_words(state, now));
                    }
                }
                Op::Settle(actual) => {
                    rule.settle(&mut state, &Charge::new(now.at(), 1), now.at(), actual);
                    words = state
                        .as_ref()
                        .and_then(|state| rule.to_two_words(state, now));
                }
            }
            let (Some(state), Some(words)) = (&state, words) else {
                continue;
            };
            let read = rule.read_two_words(words, now).unwrap();
            prop_assert_eq!(
                rule.look(Some(&read), now.at()),
                rule.look(Some(state), now.at())
            );
            let end = now.instant_of(rule.two_buckets().unwrap().end(words));
            prop_assert_eq!(end, rule.forgettable_at(state));
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn two_words_decide_as_the_state_does(a in bucket(), b in bucket(), ops in ops()) {
            check(&(a, b), &ops)?;
            check(&Cascade::new(a).then(b), &ops)?;
            if let Ok(marker) = ThreeColor::try_new(a.quota(), b.quota()) {
                check(&marker, &ops)?;
            }
        }
    }
}
