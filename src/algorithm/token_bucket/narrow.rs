//! The common case in words of 64 bits: a whole interval, a bucket that starts full and
//! fills within 146 years, and a key whose credit is a whole number of nanoseconds.
//!
//! Decides as `step.rs` does, in a fraction of its time; the oracle of `tests/token_bucket.rs` meets both.

use super::{TokenBucket, TokenBucketState};
use crate::{
    algorithm::{Step, credit::Credit},
    clock::Timestamp,
    decision::{Cost, Decision, Filling, Verdict},
};

/// A bucket of this rule, if both can be counted in words.
#[derive(Clone, Copy)]
pub(super) struct Narrow<'a> {
    rule: &'a TokenBucket,
    /// Nanoseconds of filling that the bucket holds, below zero in debt; at most `rule.full_nanos`.
    level: i64,
    at: Timestamp,
}

impl<'a> Narrow<'a> {
    #[inline]
    pub(super) fn of(
        rule: &'a TokenBucket,
        state: Option<&TokenBucketState>,
        now: Timestamp,
    ) -> Option<Self> {
        let full = i64::try_from(rule.full_nanos?.get()).ok()?;
        let Some(state) = state else {
            return Some(Self {
                rule,
                level: full,
                at: now,
            });
        };
        let credit = state.credit.whole().filter(|credit| *credit <= full)?;
        let at = now.max(state.written_at);
        let elapsed = at.as_nanos() - state.written_at.as_nanos();
        // The first operand is at most 2^62, the second at most 2^63 - 1.
        let elapsed = i64::try_from(elapsed).unwrap_or(i64::MAX);
        Some(Self {
            rule,
            level: credit.saturating_add(elapsed).min(full),
            at,
        })
    }

    /// Spends `cost` if the bucket holds it.
    #[inline]
    pub(super) fn step(
        mut self,
        state: &mut Option<TokenBucketState>,
        now: Timestamp,
        cost: Cost,
    ) -> Step {
        let possible = cost.get() <= self.rule.burst.get();
        // A possible price is at most that of a full bucket.
        let price = if possible {
            cost.get() * self.rule.per_token
        } else {
            0
        };
        if possible && self.level >= price as i64 {
            self.level -= price as i64;
            let credit = Credit::from_whole(self.level);
            *state = Some(TokenBucketState {
                written_at: self.at,
                credit,
            });
            let decision = self.answer(Verdict::Allow, now, cost.get());
            return Step::Wrote(decision);
        }
        let filling = self.filling(now);
        let retry_after = possible.then(|| filling.wait(price));
        let decision = self.answer(Verdict::Refuse, now, cost.get());
        Step::Kept(decision.with_retry_after(retry_after))
    }

    #[inline]
    fn answer(&self, verdict: Verdict, now: Timestamp, cost: u64) -> Decision {
        Decision::new(verdict, now, cost)
            .with_limit(self.rule.burst, self.rule.quota)
            .with_filling(self.filling(now))
    }

    #[inline]
    fn filling(&self, now: Timestamp) -> Filling {
        Filling {
            level: self.level,
            interval: self.rule.per_token,
            full: self.rule.full_nanos.map_or(0, |full| full.get()),
            stalled: self.at.as_nanos() - now.as_nanos(),
        }
    }
}
