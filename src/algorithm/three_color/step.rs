//! The colour of a call, and what it leaves of both buckets.

use super::{Color, ThreeColor, ThreeColorState};
use crate::{
    algorithm::{
        Algorithm, StateKind, Step,
        credit::Credit,
        token_bucket::{BucketLevel, TokenBucket, since},
    },
    clock::Timestamp,
    decision::{Charge, Cost, Decision, Filling, Told, Verdict},
};

/// What is in both buckets at one instant, each in units of its rate.
struct Levels {
    committed: i128,
    peak: i128,
    /// Never before the last write.
    at: Timestamp,
}

impl ThreeColor {
    #[inline]
    fn levels(&self, state: Option<&ThreeColorState>, now: Timestamp) -> Levels {
        let Some(state) = state else {
            return Levels {
                committed: self.committed.initial_fill(now).level,
                peak: self.peak.initial_fill(now).level,
                at: now,
            };
        };
        let at = now.max(state.written_at);
        let [committed, peak] = state.buckets();
        Levels {
            committed: self.committed.filled(&committed, at).level,
            peak: self.peak.filled(&peak, at).level,
            at,
        }
    }

    #[inline]
    fn state(&self, levels: &Levels) -> ThreeColorState {
        ThreeColorState {
            written_at: levels.at,
            committed: self.committed.state(levels.committed, levels.at).credit,
            peak: self.peak.state(levels.peak, levels.at).credit,
        }
    }

    /// What `cost` leaves of both buckets, and its colour; `None` is red.
    #[inline]
    fn pay(&self, levels: &Levels, cost: u64) -> Option<(Levels, Color)> {
        let given = self.given.unwrap_or(Color::Green);
        if given == Color::Red {
            return None;
        }
        let peak = self.peak.pay(levels.peak, cost)?;
        let green = self.committed.pay(levels.committed, cost);
        let (committed, color) = match green.filter(|_| given == Color::Green) {
            Some(committed) => (committed, Color::Green),
            None => (levels.committed, Color::Yellow),
        };
        let at = levels.at;
        let levels = Levels {
            committed,
            peak,
            at,
        };
        Some((levels, color))
    }

    #[inline]
    fn answer(
        &self,
        verdict: Verdict,
        now: Timestamp,
        cost: u64,
        levels: &Levels,
        color: Color,
    ) -> Decision {
        // Nothing that was given red passes, now or later.
        let (remaining, more) = if self.given == Some(Color::Red) {
            (0, None)
        } else {
            let remaining = self.peak.tokens(levels.peak);
            (remaining, self.peak.until(levels.peak, remaining + 1))
        };
        let rest = self
            .committed
            .until_rest(levels.committed, Some(0))
            .max(self.peak.until_rest(levels.peak, Some(0)));
        let wait = |wait| since(now, levels.at, wait).unwrap_or_default();
        Decision::new(verdict, now, cost)
            .with_limit(self.peak.burst, self.peak.quota())
            .with_told(Told {
                remaining,
                more_after: wait(more),
                reset_after: wait(rest),
            })
            .with_class(color as u8)
    }

    /// The answer to a cost that is red.
    fn refuse(&self, now: Timestamp, cost: u64, asked: u64, levels: &Levels) -> Decision {
        let wait = self.peak.until(levels.peak, asked);
        let wait = wait.filter(|_| self.given != Some(Color::Red));
        self.answer(Verdict::Refuse, now, cost, levels, Color::Red)
            .with_retry_after(since(now, levels.at, wait))
    }

    /// Both buckets counted in words of 64 bits, if rule and state can be: in a fraction of the time.
    ///
    /// What remains, and when there is more, is up to the peak bucket alone. So the decision tells how that one fills, and
    /// that all is back when both would be full.
    #[inline]
    fn step_metered(
        &self,
        state: &mut Option<ThreeColorState>,
        now: Timestamp,
        cost: Cost,
    ) -> Option<Step> {
        let [committed, peak] = state.as_ref()?.buckets();
        let (committed, green) = self.committed.metered(&committed, now)?;
        let (peak, level) = self.peak.metered(&peak, now)?;
        let given = self.given.unwrap_or(Color::Green);
        if given == Color::Red {
            return None;
        }
        let (paid, decision) = peak.decide(level, now, 0, 0, cost);
        let level = paid.unwrap_or(level);
        // Of a full bucket there will never be more, though the other one may still fill; and debts would add up.
        if level == peak.full() || green < 0 {
            return None;
        }
        let (green, color) = match committed.pay(green, cost.get()) {
            _ if paid.is_none() => (green, Color::Red),
            Some(green) if given == Color::Green => (green, Color::Green),
            _ => (green, Color::Yellow),
        };
        let until_both = (level + (committed.full() - green)).max(peak.full());
        let decision = decision
            .with_filling(Filling {
                level,
                interval: peak.interval(),
                full: until_both as u64,
                stalled: 0,
                given_back: Filling::NO_POSITION,
            })
            .with_class(color as u8);
        if paid.is_none() {
            return Some(Step::Kept(decision));
        }
        *state = Some(ThreeColorState {
            written_at: now,
            committed: Credit::from_thirds(green),
            peak: Credit::from_thirds(level),
        });
        Some(Step::Wrote(decision))
    }

    /// Any rule and any state.
    #[inline]
    fn step_wide(&self, state: &mut Option<ThreeColorState>, now: Timestamp, cost: Cost) -> Step {
        let (levels, cost) = (self.levels(state.as_ref(), now), cost.get());
        let Some((levels, color)) = self.pay(&levels, cost) else {
            return Step::Kept(self.refuse(now, cost, cost, &levels));
        };
        *state = Some(self.state(&levels));
        Step::Wrote(self.answer(Verdict::Allow, now, cost, &levels, color))
    }
}

impl ThreeColorState {
    /// The states of the committed and the peak bucket.
    #[inline]
    fn buckets(&self) -> [BucketLevel; 2] {
        let written_at = self.written_at;
        [self.committed, self.peak].map(|credit| BucketLevel { written_at, credit })
    }
}

impl Algorithm for ThreeColor {
    type State = ThreeColorState;

    #[inline]
    fn step(&self, state: &mut Option<ThreeColorState>, now: Timestamp, cost: Cost) -> Step {
        self.step_metered(state, now, cost)
            .unwrap_or_else(|| self.step_wide(state, now, cost))
    }

    /// The class is that of a call of one unit.
    fn look(&self, state: Option<&ThreeColorState>, now: Timestamp) -> Decision {
        let levels = self.levels(state, now);
        match self.pay(&levels, 1) {
            Some((_, color)) => self.answer(Verdict::Allow, now, 0, &levels, color),
            None => self.refuse(now, 0, 1, &levels),
        }
    }

    /// Corrects the buckets that a call of its colour spends, as a
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
        let at = state.map_or(now, |state| now.max(state.written_at));
        let known = state.as_ref().map(ThreeColorState::buckets);
        let [committed, peak] = [0, 1].map(|n| known.as_ref().map(|buckets| &buckets[n]));
        let new_peak = self.peak.corrected(peak, charge, at, actual);
        let new_committed = self.committed.corrected(committed, charge, at, actual);
        let new_committed = new_committed.filter(|_| green);
        if new_peak.is_none() && new_committed.is_none() {
            return;
        }
        let peak = new_peak.or(peak.copied());
        let committed = new_committed.or(committed.copied());
        // One is corrected where it was charged and the other one now, if that has filled up meanwhile.
        let written_at = [peak, committed]
            .into_iter()
            .flatten()
            .map(|level| level.written_at);
        let at = written_at.max().unwrap_or(at);
        let level = |bucket: &TokenBucket, level: Option<BucketLevel>| match level {
            Some(level) => bucket.filled(&level, at).level,
            None => bucket.initial_fill(at).level,
        };
        *state = Some(self.state(&Levels {
            committed: level(&self.committed, committed),
            peak: level(&self.peak, peak),
            at,
        }));
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named("three-color") }
    }

    #[inline]
    fn forgettable_at(&self, state: &ThreeColorState) -> Timestamp {
        let [committed, peak] = state.buckets();
        let committed = self.committed.at_rest_from(&committed);
        committed.max(self.peak.at_rest_from(&peak))
    }

    /// What is red is never charged.
    fn class_bits(&self) -> u32 {
        1
    }
}
