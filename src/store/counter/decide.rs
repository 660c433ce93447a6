//! Adds, decides by the total, and takes back what was refused.

use std::borrow::Borrow;

use super::{Totals, counter_set::CounterAsk, inner::Inner, slice_totals::SliceTotals};
use crate::{
    algorithm::Counted,
    decision::Decision,
    store::{Decisions, Error, Increment, engine::Counter},
    time::{Clock, Timestamp},
};

/// The addition of one ask, and its decision.
struct Spent {
    counter: Box<[u8]>,
    found: SliceTotals,
    decision: Decision,
    /// The units of the addition that stay in the counter: the cost, or all that were granted.
    units: u64,
}

impl<I: Increment, Rule: Counted, K: Clock> Inner<I, Rule, K> {
    /// Spends all asks, or none.
    pub(super) async fn acquire(&self, asked: &[CounterAsk<Rule>]) -> Result<Decisions, Error> {
        let now = self.now();
        if asked.iter().any(|one| self.doubts(one, now)) {
            // A refusal that is foreseen only reads, so it adds nothing that others would see.
            let found = match self.read(asked, now).await {
                Ok(found) => found,
                Err(error) => {
                    // A counter that cannot be read may still accept additions.
                    asked.iter().for_each(|one| self.hints.forget(one.hash));
                    return Err(error);
                }
            };
            let stand = |(found, one): (&SliceTotals, _)| self.learned(one, found.stand(one));
            let decisions: Decisions = found.iter().zip(asked).map(stand).collect();
            if !decisions.is_admitted() {
                return Ok(decisions);
            }
        }
        let now = self.now();
        let mut all: Vec<Spent> = Vec::with_capacity(asked.len());
        for (n, one) in asked.iter().enumerate() {
            let spent = match self.spend(one, now).await {
                Ok(spent) => spent,
                Err(error) => {
                    self.give_back(&all, asked).await;
                    return Err(error);
                }
            };
            if spent.decision.is_admitted() {
                all.push(spent);
                continue;
            }
            self.give_back(&all, asked).await;
            // The answers to the others are looks.
            let behind = &asked[n + 1..];
            let unasked = if behind.is_empty() {
                Vec::new()
            } else {
                self.read(behind, now).await?
            };
            let before = all
                .iter()
                .zip(asked)
                .map(|(spent, one)| spent.found.look(one));
            let behind = unasked
                .iter()
                .zip(behind)
                .map(|(found, one)| found.stand(one));
            return Ok(before.chain([spent.decision]).chain(behind).collect());
        }
        Ok(all.iter().map(|spent| spent.decision).collect())
    }

    /// Returns how keys stand.
    pub(super) async fn look(&self, asked: &[CounterAsk<Rule>]) -> Result<Decisions, Error> {
        let found = self.read(asked, self.now()).await?;
        let look = |(found, one): (&SliceTotals, _)| found.look(one);
        Ok(found.iter().zip(asked).map(look).collect())
    }

    /// Returns `true` if a call is likely to be refused, or sure to be because even a fresh key would refuse it.
    fn doubts(&self, one: &CounterAsk<Rule>, now: Timestamp) -> bool {
        let never = || {
            !one.rule
                .step(&mut None, now, one.cost)
                .decision()
                .is_admitted()
        };
        self.hints.doubts(one.hash, one.cost, now) || never()
    }

    fn learned(&self, one: &CounterAsk<Rule>, decision: Decision) -> Decision {
        self.hints.learn(one.hash, one.cost, &decision);
        decision
    }

    /// Adds, and decides by the total. A refused addition is taken back at once, and so is what is more than was granted.
    async fn spend(&self, one: &CounterAsk<Rule>, now: Timestamp) -> Result<Spent, Error> {
        let (place, added) = (&one.place, one.added);
        let slices = place.slices(now, self.apart);
        let counter = place.counter(slices.own);
        let beside: Vec<_> = slices
            .numbers()
            .filter(|slice| *slice != slices.own)
            .map(|slice| place.counter(slice))
            .collect();
        let keep = self.keep(place, slices.own);
        self.counts.additions.add(1);
        let Totals {
            total,
            beside: mut totals,
        } = self.increment.add(&counter, added, keep, &beside).await?;
        let before = total.checked_sub(added).ok_or_else(shrunk)?;
        if totals.len() != beside.len() {
            return Err(miscounted());
        }
        totals.insert(slices.ahead(), before);
        let found = SliceTotals {
            now,
            slices,
            totals,
        };
        let judged = self.seen_late(one, found).await;
        let judged = judged.map(|found| {
            let granted = found.granted(one);
            let decision = self.learned(one, found.step(one, granted));
            (decision, granted.get(), found)
        });
        match &judged {
            Ok((decision, units, _)) if decision.is_admitted() => {
                let excess = added.saturating_sub(*units);
                if excess > 0 {
                    self.take_back(&counter, excess, &self.counts.cut).await;
                }
            }
            _ => {
                self.take_back(&counter, added, &self.counts.taken_back)
                    .await;
            }
        }
        let (decision, units, found) = judged?;
        Ok(Spent {
            counter,
            found,
            decision,
            units,
        })
    }

    /// Reads the slices that may have begun while the addition was under way, of a window that slides.
    ///
    /// A call that counts in one of them adds and then reads this slice. It either sees this addition, or has added before it, and
    /// then this reading sees that addition. So two calls never miss each other.
    async fn seen_late(
        &self,
        one: &CounterAsk<Rule>,
        mut found: SliceTotals,
    ) -> Result<SliceTotals, Error> {
        let place = &one.place;
        if place.slicing.older() == 0 {
            return Ok(found);
        }
        let now = self.now();
        if now >= place.slicing.over(found.slices.own) {
            // It counts no more, and what has passed since did not see it.
            return Err(Error::timeout());
        }
        let late = found
            .slices
            .extend(place.latest(found.slices.own, now, self.apart));
        if !late.is_empty() {
            let late: Vec<_> = late.rev().map(|slice| place.counter(slice)).collect();
            let mut totals = self.totals(&late).await?;
            totals.append(&mut found.totals);
            found.totals = totals;
        }
        Ok(found)
    }

    /// Reads the totals of all that is asked for, at once.
    pub(super) async fn read<Q: Borrow<CounterAsk<Rule>>>(
        &self,
        asked: &[Q],
        now: Timestamp,
    ) -> Result<Vec<SliceTotals>, Error> {
        let slices: Vec<_> = asked
            .iter()
            .map(|one| one.borrow().place.slices(now, self.apart))
            .collect();
        let names: Vec<_> = asked
            .iter()
            .zip(&slices)
            .flat_map(|(one, slices)| {
                slices
                    .numbers()
                    .map(|slice| one.borrow().place.counter(slice))
            })
            .collect();
        let mut totals = self.totals(&names).await?.into_iter();
        let found = slices.into_iter().map(|slices| SliceTotals {
            now,
            slices,
            totals: totals.by_ref().take(slices.len()).collect(),
        });
        Ok(found.collect())
    }

    async fn totals(&self, counters: &[Box<[u8]>]) -> Result<Vec<u64>, Error> {
        self.counts.readings.add(1);
        let totals = self.increment.read(counters).await?;
        if totals.len() == counters.len() {
            Ok(totals)
        } else {
            Err(miscounted())
        }
    }

    /// Takes back what earlier asks of the same call have added.
    async fn give_back(&self, all: &[Spent], asked: &[CounterAsk<Rule>]) {
        for (spent, one) in all.iter().zip(asked) {
            self.hints.forget(one.hash);
            self.take_back(&spent.counter, spent.units, &self.counts.taken_back)
                .await;
        }
    }

    /// Takes back what was added, and counts that, if the store can be reached; otherwise it counts for as long as its slice does.
    async fn take_back(&self, counter: &[u8], amount: u64, done: &Counter) {
        let count = match self.increment.subtract(counter, amount).await {
            Ok(()) => done,
            Err(_) => &self.counts.left_behind,
        };
        count.add(1);
    }
}

#[cold]
fn shrunk() -> Error {
    Error::other(
        "the store tells a total below what was added to it: expected counters that never wrap, as \
         `Increment` says; see that nobody else writes its keys",
    )
}

#[cold]
pub(super) fn miscounted() -> Error {
    Error::other(
        "the store tells more totals or fewer than it was asked for: expected one for each counter, in \
         their order; correct its `Increment`",
    )
}
