//! How many calls pass.

use std::{fmt::Debug, time::Duration};

use super::{Asked, Bench, Kept, cost};
use crate::{
    algorithm::Algorithm,
    decision::Decision,
    store::Store,
    testing::conformance::{place::Place, report::Breach},
    time::Timestamp,
};

/// As many calls are counted at most.
pub(in super::super) const MANY: u64 = 48;
/// How long nothing may come back for calls that are made meanwhile to be counted.
const LONG: Duration = Duration::from_secs(20);

/// Calls of one cost, as many as pass at once from a fresh key.
pub(in super::super) struct Lot {
    pub(in super::super) units: u64,
    pub(in super::super) calls: u64,
    /// What is left after each.
    pub(in super::super) left: Vec<u64>,
    /// When it was counted.
    pub(in super::super) at: Timestamp,
}

impl<R, S> Bench<'_, R, S>
where
    R: Algorithm + Debug,
    S: Store<R, Error: Debug>,
{
    /// Spends all there is, in 50 calls or so; tells the answer to one more of 1.
    pub(in super::super) async fn exhaust(
        &mut self,
        place: &Place,
        rule: &R,
    ) -> Result<Decision, Breach> {
        let mut left = self.look(place, rule).await?.remaining().unwrap_or(0);
        let units = left / 32 + 1;
        for _ in 0..MANY {
            if left == 0 {
                break;
            }
            let answer = self.acquire(place, rule, units.min(left)).await?;
            left = answer.remaining().unwrap_or(0);
        }
        self.acquire(place, rule, 1).await
    }

    /// As many calls as pass at once from this fresh key.
    ///
    /// `None` where so few pass, or units come back so soon, that they cannot be counted.
    pub(in super::super) async fn lot(
        &mut self,
        place: &Place,
        rule: &R,
        least: u64,
    ) -> Result<Option<Lot>, Breach> {
        let look = self.look(place, rule).await?;
        let (own, at) = (place.own(rule), look.at());
        let fresh = own.look(None, at).remaining().unwrap_or(0);
        let units = if fresh <= MANY {
            1
        } else {
            fresh.div_ceil(MANY / 2)
        };
        let (mut state, mut left) = (None, Vec::new());
        // A rule may let more pass than what it says remains, as one of several buckets.
        for _ in 0..2 * MANY {
            let decision = own.step(&mut state, at, cost(units)).decision();
            if !decision.is_admitted() {
                break;
            }
            left.push(decision.remaining().unwrap_or(0));
        }
        let calls = left.len() as u64;
        let more = own.look(state.as_ref(), at).more_after();
        let is_still = self.moves_time() || more.is_zero() || more >= LONG;
        let is_counted = is_still && (least..2 * MANY).contains(&calls);
        Ok(is_counted.then_some(Lot {
            units,
            calls,
            left,
            at,
        }))
    }

    /// Under no rule was there a lot.
    pub(in super::super) fn nothing_counted(&self) -> Breach {
        self.unchecked(
            "calls can be counted under no rule; give the suite one under which three pass that come back after \
             20 s or later, as `5/1h`",
        )
    }

    /// Whether a fresh key's first call for 1 passes, if its rule lets it.
    pub(in super::super) fn begins_afresh(
        &self,
        place: &Place,
        rule: &R,
        first: &Decision,
    ) -> bool {
        let fresh = place.own(rule).look(None, first.at()).remaining();
        let under = self.suite.slack.unwrap_or_default().under;
        first.is_admitted() || fresh <= Some(under)
    }

    /// How many calls of a lot pass one after the other.
    pub(in super::super) async fn pass_now(
        &mut self,
        place: &Place,
        rule: &R,
        lot: &Lot,
    ) -> Result<u64, Breach> {
        let mut passed = 0;
        for _ in 0..lot.calls + MANY {
            let asked = [Asked::new(place, rule, lot.units)];
            if !self.decided(&asked, false).await?[0].is_admitted() {
                break;
            }
            passed += 1;
        }
        Ok(passed)
    }

    /// As many calls passed of a lot, and of so many more nobody knows whether they were charged.
    pub(in super::super) fn counted(&self, lot: &Lot, passed: u64, unknown: u64) -> Kept {
        if !self.moves_time() && self.model.newest().saturating_since(lot.at) >= LONG {
            // So slow a machine cannot count: units have come back meanwhile.
            return Ok(());
        }
        let slack = self.suite.slack.unwrap_or_default();
        let most = lot.calls + slack.over.div_ceil(lot.units);
        let least = lot
            .calls
            .saturating_sub(unknown + slack.under.div_ceil(lot.units));
        if (least..=most).contains(&passed) {
            return Ok(());
        }
        let right = if least == most {
            format!("{most}")
        } else {
            format!("{least} to {most}")
        };
        Err(self.breach(format!(
            "{passed} calls for {} passed, where its rule lets {right} pass at once",
            lot.units
        )))
    }
}
