//! Corrections of what was charged.

use std::{fmt::Debug, time::Duration};

use super::super::{
    Law,
    bench::{Bench, Corrected, Kept},
    place::Place,
    report::Breach,
};
use crate::{algorithm::Algorithm, decision::Charge, store::Store};

impl<R, S> Bench<'_, R, S>
where
    R: Algorithm + Debug,
    S: Store<R, Error: Debug>,
{
    pub(in super::super) async fn settles(&mut self) -> Kept {
        let mut checked = 0;
        for rule in &self.suite.rules {
            self.begin(rule);
            let alice = self.place("alice");
            let Some(lot) = self.lot(&alice, rule, 2).await? else {
                continue;
            };
            checked += 1;
            let half = lot.units.saturating_mul(lot.calls / 2);
            let whole = lot.units.saturating_mul(lot.calls);
            self.corrected(&alice, rule, half, 0).await?;
            self.corrected(&alice, rule, half, half.div_ceil(2)).await?;
            self.corrected(&alice, rule, 1, 1).await?;
            // By force, into debt.
            self.corrected(&alice, rule, 1, whole).await?;
            self.acquire(&alice, rule, 1).await?;

            self.one_of_two(rule, half).await?;
            self.in_one_call(rule, half).await?;
            self.later(rule, half).await?;
        }
        if checked == 0 {
            return Err(self.nothing_counted());
        }
        Ok(())
    }

    async fn charged(
        &mut self,
        place: &Place,
        rule: &R,
        units: u64,
    ) -> Result<Option<Charge>, Breach> {
        Ok(self.acquire(place, rule, units).await?.charge())
    }

    /// Spends, and corrects that.
    async fn corrected(&mut self, place: &Place, rule: &R, units: u64, actual: u64) -> Kept {
        let Some(charge) = self.charged(place, rule, units).await? else {
            return Ok(());
        };
        let corrected = Corrected {
            place,
            rule,
            charge,
            actual,
        };
        self.settle(&[corrected]).await
    }

    /// The earlier one of two charges, and then the other one.
    async fn one_of_two(&mut self, rule: &R, units: u64) -> Kept {
        let bob = &self.place("bob");
        let charges = [
            self.charged(bob, rule, units).await?,
            self.charged(bob, rule, 1).await?,
        ];
        for charge in charges.into_iter().flatten() {
            let corrected = Corrected {
                place: bob,
                rule,
                charge,
                actual: 0,
            };
            self.settle(&[corrected]).await?;
        }
        self.acquire(bob, rule, 1).await.map(drop)
    }

    /// Two keys in one call; and a charge of a key that was reset since.
    async fn in_one_call(&mut self, rule: &R, units: u64) -> Kept {
        let (carol, dave) = (&self.place("carol"), &self.place("dave"));
        let charges = (
            self.charged(carol, rule, units).await?,
            self.charged(dave, rule, units).await?,
        );
        let (Some(first), Some(second)) = charges else {
            return Ok(());
        };
        let corrected = |place, charge, actual| Corrected {
            place,
            rule,
            charge,
            actual,
        };
        self.settle(&[
            corrected(carol, first, 0),
            corrected(dave, second.duplicate(), 1),
        ])
        .await?;
        if !self.suite.leaves_out(Law::Reset) {
            self.reset(dave).await?;
            self.settle(&[corrected(dave, second, 0)]).await?;
            self.acquire(dave, rule, 1).await?;
        }
        Ok(())
    }

    /// After some of it has come back, and after all has.
    async fn later(&mut self, rule: &R, units: u64) -> Kept {
        if !self.moves_time() {
            return Ok(());
        }
        for part in [3, 1] {
            let erin = &self.place("erin");
            let Some(charge) = self.charged(erin, rule, units).await? else {
                continue;
            };
            let back = self.look(erin, rule).await?.reset_after();
            if !self.can_wait(back) {
                continue;
            }
            self.pass(back / part + Duration::from_nanos(1)).await;
            for actual in [0, units.saturating_mul(2)] {
                let corrected = Corrected {
                    place: erin,
                    rule,
                    charge: charge.duplicate(),
                    actual,
                };
                self.settle(&[corrected]).await?;
            }
            self.acquire(erin, rule, 1).await?;
        }
        Ok(())
    }
}
