//! Faults that come and go.

use std::{fmt::Debug, time::Duration};

use super::super::{
    bench::{Bench, Kept},
    place::Place,
};
use crate::{algorithm::Algorithm, decision::Decision, store::Store};

/// As many calls meet the fault.
const FAULTY: u64 = 6;
/// How often, and after what wait each, a store is asked whether it is back.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(100);

impl<R, S> Bench<'_, R, S>
where
    R: Algorithm + Debug,
    S: Store<R, Error: Debug>,
{
    pub(in super::super) async fn faults(&mut self) -> Kept {
        let Some(fault) = &self.suite.fault else {
            return Ok(());
        };
        let mut checked = 0;
        for rule in &self.suite.rules {
            self.begin(rule);
            let alice = self.place("alice");
            let Some(lot) = self.lot(&alice, rule, 3).await? else {
                continue;
            };
            checked += 1;
            let calls = FAULTY.min((lot.calls - 1) / 2);
            self.note("the fault begins".to_owned());
            fault(true);
            let met = self.meet(&alice, rule, lot.units, calls).await;
            self.note("the fault ends".to_owned());
            fault(false);
            met?;
            self.come_back(rule).await?;
            let passed = self.pass_now(&alice, rule, &lot).await?;
            self.counted(&lot, passed, calls)?;
            // Nothing else has changed.
            let bob = self.place("bob");
            self.exhaust(&bob, rule).await?;
        }
        if checked == 0 {
            return Err(self.nothing_counted());
        }
        Ok(())
    }

    /// While there is a fault, each call comes to an end, and what is undecided has no numbers.
    async fn meet(&mut self, place: &Place, rule: &R, units: u64, calls: u64) -> Kept {
        for _ in 0..calls {
            for answer in [
                self.try_acquire(place, rule, units).await?,
                self.try_look(place, rule).await?,
            ] {
                let invented = |decision: &Decision| {
                    decision.is_undecided()
                        && (decision.limit().is_some() || decision.charge().is_some())
                };
                if answer.is_ok_and(|decision| invented(&decision)) {
                    return Err(self.breach("an undecided answer has numbers"));
                }
            }
        }
        Ok(())
    }

    /// Waits for a store that takes its time to trust what has failed.
    async fn come_back(&mut self, rule: &R) -> Kept {
        let nobody = self.place("nobody");
        for _ in 0..TRIES {
            let look = self.try_look(&nobody, rule).await?;
            if look.is_ok_and(|decision| !decision.is_undecided()) {
                return Ok(());
            }
            self.pass(PAUSE).await;
            // Who was let down may count on another clock.
            if let Some(sleep) = self.suite.sleep.as_ref().filter(|_| self.moves_time()) {
                sleep(PAUSE).await;
            }
        }
        Err(self.breach(format!("no answer in {TRIES} looks after the fault")))
    }
}
