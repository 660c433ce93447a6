//! Counting of admitted calls.

use std::{fmt::Debug, time::Duration};

use super::{CheckResult, Checker, TestAsk, cost};
use crate::{
    algorithm::Algorithm,
    decision::Decision,
    testing::conformance::{report::Breach, subject::Subject},
    time::Timestamp,
};

/// The maximum number of counted calls.
pub(in super::super) const MAX_CALLS: u64 = 48;
/// The time without a refill that is needed to count calls while time passes.
const MIN_IDLE: Duration = Duration::from_secs(20);

/// All calls of one cost that pass at once for a new key.
pub(in super::super) struct Burst {
    pub(in super::super) units: u64,
    pub(in super::super) calls: u64,
    /// The remaining units after each call.
    pub(in super::super) left: Vec<u64>,
    /// The instant of the count.
    pub(in super::super) at: Timestamp,
}

impl<R: Algorithm + Debug> Checker<'_, R> {
    /// Spends all units in some 50 calls. Returns the answer to one more call.
    pub(in super::super) async fn exhaust(
        &mut self,
        subject: &Subject,
        rule: &R,
    ) -> Result<Decision, Breach> {
        let mut left = self.look(subject, rule).await?.remaining().unwrap_or(0);
        let units = left / 32 + 1;
        for _ in 0..MAX_CALLS {
            if left == 0 {
                break;
            }
            let answer = self.acquire(subject, rule, units.min(left)).await?;
            left = answer.remaining().unwrap_or(0);
        }
        self.acquire(subject, rule, 1).await
    }

    /// Returns all calls that pass at once for this new key.
    ///
    /// Returns `None` if fewer than `least` pass, or units are refilled too soon to count calls.
    pub(in super::super) async fn burst(
        &mut self,
        subject: &Subject,
        rule: &R,
        least: u64,
    ) -> Result<Option<Burst>, Breach> {
        let look = self.look(subject, rule).await?;
        let (own, at) = (subject.own(rule), look.at());
        let fresh = own.look(None, at).remaining().unwrap_or(0);
        let units = if fresh <= MAX_CALLS {
            1
        } else {
            fresh.div_ceil(MAX_CALLS / 2)
        };
        let (mut state, mut left) = (None, Vec::new());
        // A rule may admit more than its remaining units, for example one of several buckets.
        for _ in 0..2 * MAX_CALLS {
            let decision = own.step(&mut state, at, cost(units)).decision();
            if !decision.is_admitted() {
                break;
            }
            left.push(decision.remaining().unwrap_or(0));
        }
        let calls = left.len() as u64;
        let more = own.look(state.as_ref(), at).more_after();
        let is_still = self.moves_time() || more.is_zero() || more >= MIN_IDLE;
        let is_counted = is_still && (least..2 * MAX_CALLS).contains(&calls);
        Ok(is_counted.then_some(Burst {
            units,
            calls,
            left,
            at,
        }))
    }

    /// Returns the error of a suite without a rule whose calls can be counted.
    pub(in super::super) fn nothing_counted(&self) -> Breach {
        self.unchecked(
            "calls can be counted under no rule; give the suite a rule that admits three calls and refills after \
             20 s or later, as `5/1h`",
        )
    }

    /// Returns `false` if the first call of a new key was refused though its rule admits it.
    pub(in super::super) fn is_like_new(
        &self,
        subject: &Subject,
        rule: &R,
        first: &Decision,
    ) -> bool {
        let fresh = subject.own(rule).look(None, first.at()).remaining();
        let under = self.suite.slack.unwrap_or_default().under;
        first.is_admitted() || fresh <= Some(under)
    }

    /// Makes calls until one is refused. Returns the number of admitted ones.
    pub(in super::super) async fn count_admitted(
        &mut self,
        subject: &Subject,
        rule: &R,
        burst: &Burst,
    ) -> Result<u64, Breach> {
        let mut passed = 0;
        for _ in 0..burst.calls + MAX_CALLS {
            let asked = [TestAsk::new(subject, rule, burst.units)];
            if !self.decided(&asked, false).await?[0].is_admitted() {
                break;
            }
            passed += 1;
        }
        Ok(passed)
    }

    /// Checks the number of admitted calls. `unknown` more calls may have been charged.
    pub(in super::super) fn counted(
        &self,
        burst: &Burst,
        passed: u64,
        unknown: u64,
    ) -> CheckResult {
        if !self.moves_time() && self.model.newest().saturating_since(burst.at) >= MIN_IDLE {
            // The machine was too slow to count: units were refilled.
            return Ok(());
        }
        let slack = self.suite.slack.unwrap_or_default();
        let max = burst.calls + slack.over.div_ceil(burst.units);
        let min = burst
            .calls
            .saturating_sub(unknown + slack.under.div_ceil(burst.units));
        if (min..=max).contains(&passed) {
            return Ok(());
        }
        let right = if min == max {
            format!("{max}")
        } else {
            format!("{min} to {max}")
        };
        Err(self.breach(format!(
            "{passed} calls for {} passed, but its rule lets {right} pass at once",
            burst.units
        )))
    }
}
