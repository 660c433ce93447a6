//! The colour of a call, and the levels of both buckets afterwards.

use std::time::Duration;

use super::{Color, ThreeColor};
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        bucket::{self, Bucket, BucketLevel},
        packed::{BuiltIn, Form, InWords, StoreTime, TwoWords},
        rate::Rate,
        ticks::{after, after_ticks},
    },
    decision::{Charge, Compute, Cost, Decision, Deferred, Numbers, Verdict},
    time::Timestamp,
};

/// The levels of both buckets at one instant, in ticks. As the state of a key under a
/// [`ThreeColor`], those at the last write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreeColorState {
    pub(super) written_at: Timestamp,
    pub(super) committed: i64,
    pub(super) peak: i64,
}

/// A rule as two buckets, which start full.
struct Marker<'a> {
    rule: &'a ThreeColor,
    committed: Bucket<'a>,
    peak: Bucket<'a>,
}

impl ThreeColor {
    #[inline]
    fn marker(&self) -> Marker<'_> {
        Marker {
            rule: self,
            committed: self.committed.plain(),
            peak: self.peak.plain(),
        }
    }

    /// Steps on the levels of both buckets; returns the new ones if the call passes.
    #[inline(always)]
    pub(in crate::algorithm) fn step_levels(
        &self,
        [committed, peak]: [i64; 2],
        at: Timestamp,
        cost: Cost,
    ) -> (Option<[i64; 2]>, Decision) {
        let levels = ThreeColorState {
            written_at: at,
            committed,
            peak,
        };
        let (marker, cost) = (self.marker(), cost.get());
        match marker.pay(&levels, cost) {
            Some((left, color)) => {
                let decision = marker.answer(Verdict::Allow, at, cost, &left, color);
                (Some([left.committed, left.peak]), decision)
            }
            None => (None, marker.refuse(at, cost, cost, &levels)),
        }
    }
}

impl Marker<'_> {
    /// Returns the levels now, or at the last write if that is later.
    #[inline]
    fn levels(&self, state: Option<&ThreeColorState>, now: Timestamp) -> ThreeColorState {
        let Some(state) = state else {
            return ThreeColorState {
                written_at: now,
                committed: self.committed.initial_fill(now).level,
                peak: self.peak.initial_fill(now).level,
            };
        };
        let written_at = now.max(state.written_at);
        let [committed, peak] = state.buckets();
        ThreeColorState {
            written_at,
            committed: self.committed.filled(&committed, written_at).level,
            peak: self.peak.filled(&peak, written_at).level,
        }
    }

    /// Returns the levels after `cost` is paid, and its colour; `None` is red.
    #[inline]
    fn pay(&self, levels: &ThreeColorState, cost: u64) -> Option<(ThreeColorState, Color)> {
        let given = self.rule.given.unwrap_or(Color::Green);
        if given == Color::Red {
            return None;
        }
        let peak = self.peak.pay(levels.peak, cost)?;
        let green = self.committed.pay(levels.committed, cost);
        let (committed, color) = match green.filter(|_| given == Color::Green) {
            Some(committed) => (committed, Color::Green),
            None => (levels.committed, Color::Yellow),
        };
        let levels = ThreeColorState {
            committed,
            peak,
            ..*levels
        };
        Some((levels, color))
    }

    #[inline(always)]
    fn answer(
        &self,
        verdict: Verdict,
        now: Timestamp,
        cost: u64,
        levels: &ThreeColorState,
        color: Color,
    ) -> Decision {
        let decision = Decision::new(verdict, now, cost)
            .with_limit(self.rule.peak.burst, self.rule.peak.quota())
            .with_class(color as u8);
        let stalled = levels.written_at.nanos_since(now);
        let is_red = self.rule.given == Some(Color::Red);
        let Rate { price, full, .. } = self.peak.rule.rate;
        let lacking = (self.committed.full() - levels.committed).max(full - levels.peak);
        let [level, price, full, lacking] =
            [levels.peak, price, full, lacking].map(|ticks| ticks as u64);
        if is_red {
            // A call that was marked red before never passes.
            return decision.with_numbers(Numbers {
                remaining: 0,
                reset_after: after_ticks(stalled, lacking),
                more_after: Duration::ZERO,
            });
        }
        decision.with_deferred(Deferred {
            state: [level, price, full, stalled, lacking, 0],
            compute: &DEFERRED,
        })
    }

    /// Returns a refusal whose `retry_after` ends when the peak bucket can pay `asked`.
    #[inline(always)]
    fn refuse(&self, now: Timestamp, cost: u64, asked: u64, levels: &ThreeColorState) -> Decision {
        let wait = self.peak.until(levels.peak, asked);
        let wait = wait.filter(|_| self.rule.given != Some(Color::Red));
        let stalled = levels.written_at.nanos_since(now);
        self.answer(Verdict::Refuse, now, cost, levels, Color::Red)
            .with_retry_after(wait.map(|wait| after(stalled, wait)))
    }

    // Always inlined, so that the compiler drops the parts that plain buckets do not need.
    #[inline(always)]
    fn step(&self, state: &mut Option<ThreeColorState>, now: Timestamp, cost: Cost) -> Step {
        let (levels, cost) = (self.levels(state.as_ref(), now), cost.get());
        let Some((levels, color)) = self.pay(&levels, cost) else {
            return Step::Kept(self.refuse(now, cost, cost, &levels));
        };
        *state = Some(levels);
        Step::Wrote(self.answer(Verdict::Allow, now, cost, &levels, color))
    }

    fn look(&self, state: Option<&ThreeColorState>, now: Timestamp) -> Decision {
        let levels = self.levels(state, now);
        match self.pay(&levels, 1) {
            Some((_, color)) => self.answer(Verdict::Allow, now, 0, &levels, color),
            None => self.refuse(now, 0, 1, &levels),
        }
    }
}

/// Computes the numbers of a marker that counts in ticks: `remaining` and `more_after` of the peak
/// bucket, and `reset_after` of the bucket that lacks more.
const DEFERRED: Compute = Compute {
    remaining: bucket::remaining,
    reset_after: |&[_, _, _, stalled, lacking, _]| after_ticks(stalled, lacking),
    more_after: bucket::more_after,
    position: |_, _| None,
};

impl ThreeColorState {
    /// Returns the states of the committed and the peak bucket.
    #[inline]
    fn buckets(&self) -> [BucketLevel; 2] {
        let written_at = self.written_at;
        [self.committed, self.peak].map(|level| BucketLevel { written_at, level })
    }
}

impl Algorithm for ThreeColor {
    type State = ThreeColorState;

    #[inline]
    fn step(&self, state: &mut Option<ThreeColorState>, now: Timestamp, cost: Cost) -> Step {
        self.marker().step(state, now, cost)
    }

    /// The class is that of a call of one unit.
    fn look(&self, state: Option<&ThreeColorState>, now: Timestamp) -> Decision {
        self.marker().look(state, now)
    }

    /// Corrects the buckets that a call of the charge's colour spends, as a
    /// [`TokenBucket`](crate::TokenBucket) is corrected.
    fn settle(
        &self,
        state: &mut Option<ThreeColorState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        let green = charge.class == Color::Green as u32;
        if !green && charge.class != Color::Yellow as u32 {
            return;
        }
        let marker = self.marker();
        let at = state.map_or(now, |state| now.max(state.written_at));
        let known = state.as_ref().map(ThreeColorState::buckets);
        let [committed, peak] = [0, 1].map(|n| known.as_ref().map(|buckets| &buckets[n]));
        let new_peak = marker.peak.corrected(peak, charge, at, actual);
        let new_committed = marker.committed.corrected(committed, charge, at, actual);
        let new_committed = new_committed.filter(|_| green);
        if new_peak.is_none() && new_committed.is_none() {
            return;
        }
        let peak = new_peak.or(peak.copied());
        let committed = new_committed.or(committed.copied());
        // The two may be corrected at different times: that of the charge, or now if the bucket has
        // filled up meanwhile. The state has the later time.
        let written_at = [peak, committed]
            .into_iter()
            .flatten()
            .map(|level| level.written_at);
        let at = written_at.max().unwrap_or(at);
        let level = |bucket: &Bucket<'_>, level: Option<BucketLevel>| match level {
            Some(level) => bucket.filled(&level, at).level,
            None => bucket.initial_fill(at).level,
        };
        *state = Some(ThreeColorState {
            written_at: at,
            committed: level(&marker.committed, committed),
            peak: level(&marker.peak, peak),
        });
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named(Self::NAME) }
    }

    #[inline]
    fn forgettable_at(&self, state: &ThreeColorState) -> Timestamp {
        let [committed, peak] = state.buckets();
        let committed = self.committed.at_rest_from(&committed);
        committed.max(self.peak.at_rest_from(&peak))
    }

    fn grant_slack(&self) -> Option<u64> {
        self.peak.grant_slack().max(self.committed.grant_slack())
    }

    /// One bit is enough, because red calls are never charged.
    fn class_bits(&self) -> u32 {
        1
    }

    #[inline]
    fn built_in(&self) -> BuiltIn<'_, ThreeColorState> {
        BuiltIn::new(Form::Marked(self), self)
    }
}

impl InWords<ThreeColorState> for ThreeColor {
    fn write_words(&self, state: &ThreeColorState, now: StoreTime) -> Option<TwoWords> {
        let [committed, peak] = state.buckets();
        let committed = self.committed.pack_level(&committed, now)?;
        Some([committed, self.peak.pack_level(&peak, now)?])
    }

    #[inline]
    fn read_words(&self, words: TwoWords, now: StoreTime) -> Option<ThreeColorState> {
        let level = |packed| BucketLevel::unpack(packed, now).level;
        let [committed, peak] = words.map(level);
        Some(ThreeColorState {
            written_at: now.at(),
            committed,
            peak,
        })
    }
}
