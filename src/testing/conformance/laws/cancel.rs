//! Calls that are dropped before they are answered.

use std::{fmt::Debug, future::IntoFuture};

use super::super::{
    Law,
    bench::{Asked, Bench, Kept, Lot},
    place::Place,
    poll::{polled, together},
};
use crate::{algorithm::Algorithm, store::Store};

/// As many are dropped of one key at most.
const DROPS: u64 = 8;

impl<R, S> Bench<'_, R, S>
where
    R: Algorithm + Debug,
    S: Store<R, Error: Debug>,
{
    pub(in super::super) async fn cancel(&mut self) -> Kept {
        let mut checked = 0;
        for rule in &self.suite.rules {
            self.begin(rule);
            let alice = self.place("alice");
            let Some(lot) = self.lot(&alice, rule, 3).await? else {
                continue;
            };
            checked += 1;
            self.dropped(&[alice], rule, &lot).await?;
            if !self.suite.leaves_out(Law::Several) {
                let two = ["bob", "carol"].map(|name| self.place(name));
                self.dropped(&two, rule, &lot).await?;
            }
            self.left_behind(rule, &lot).await?;
        }
        if checked == 0 {
            return Err(self.nothing_counted());
        }
        Ok(())
    }

    /// Drops calls after so many polls each, and counts what passes then.
    async fn dropped(&mut self, places: &[Place], rule: &R, lot: &Lot) -> Kept {
        let asked: Vec<_> = places
            .iter()
            .map(|place| Asked::new(place, rule, lot.units))
            .collect();
        let (mut answered, mut dropped) = (0, 0);
        for n in 0..DROPS.min((lot.calls - 1) / 2) {
            let polls = n as usize % 5;
            let asks: Vec<_> = asked.iter().map(Asked::ask).collect();
            let call = self.suite.store.acquire(&asks).into_future();
            let what = format!(
                "a call for {} that is dropped after {polls} polls",
                lot.units
            );
            let answer = self.patiently(&what, polled(call, polls)).await?;
            match answer {
                None | Some(Err(_)) => dropped += 1,
                Some(Ok(decisions)) => answered += u64::from(decisions.is_admitted()),
            }
            self.note(what);
        }
        for place in places {
            let passed = self.pass_now(place, rule, lot).await?;
            self.counted(lot, answered + passed, dropped)?;
        }
        Ok(())
    }

    /// Drops some of several calls of one key that are under way together: the others are answered.
    async fn left_behind(&mut self, rule: &R, lot: &Lot) -> Kept {
        let place = self.place("dave");
        let asked = Asked::new(&place, rule, lot.units);
        let many = lot.calls.min(DROPS) as usize;
        let calls: Vec<_> = (0..many)
            .map(|_| self.suite.store.acquire(&[asked.ask()]).into_future())
            .collect();
        let line = format!(
            "{many} calls at once for {} of {place}, the first of them dropped",
            lot.units
        );
        let is_dropped = |n| n == 0 || n == 2;
        let answers = self.patiently(&line, together(calls, is_dropped)).await?;
        self.note(line);
        let (mut admitted, mut unknown) = (0, 0);
        for answer in answers {
            match answer {
                None | Some(Err(_)) => unknown += 1,
                Some(Ok(decisions)) => admitted += u64::from(decisions.is_admitted()),
            }
        }
        let passed = self.pass_now(&place, rule, lot).await?;
        self.counted(lot, admitted + passed, unknown)
    }
}
