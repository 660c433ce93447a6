//! The calls of a store: it adds, decides by the total, and takes back what was refused. Also
//! settlements and resets.
//!
//! Counters add first and judge by the total, so no count is lost. A refused call takes back what
//! it added. The total becomes the rule's state (`Counted`), and `step` decides. An exhausted key
//! is remembered for a while and then read before it is added to, so a refusal costs one operation.
//! At the boundary of two slices, calls add to one counter and then read the other: of two racing
//! calls, at least one sees both.
//!
//! Several asks do not use the engine of other stores (`engine/all_or_nothing.rs`): an addition is
//! the only look that others cannot overtake, so there is no state to read, step and restore.

use std::time::Duration;

use super::{
    Totals,
    slices::{CounterAsk, CounterSet, KnownSlicings, SliceTotals},
    store::OperationCounts,
    sync::OpenDeltas,
};
use crate::{
    algorithm::Counted,
    decision::{Charge, Decision},
    error,
    key::Key,
    policy::Policy,
    stats::Counter,
    store::{
        Ask, Decisions, Increment, StoreError,
        ask::ResolvedAsk,
        engine::{Lookup, RefusalCache, RefusalEntry, Unsettled},
    },
    time::{Clock, MonotoneClock, SharedClock, Timestamp},
};

/// Number of exhausted keys that are remembered, in 190 kB.
pub(super) const REFUSALS: usize = 6000;

/// State that the clones of a store share.
pub(super) struct CounterDriver<I, Rule> {
    pub(super) increment: I,
    pub(super) prefix: Box<str>,
    /// The greatest difference between the clocks of two hosts.
    pub(super) apart: Duration,
    pub(super) clock: MonotoneClock<SharedClock>,
    /// Exhausted keys. A refusal only makes a call read before it adds, so a key is its hash.
    pub(super) refusals: RefusalCache<(), ()>,
    pub(super) known: KnownSlicings<Rule>,
    pub(super) counts: OperationCounts,
    pub(super) open_deltas: OpenDeltas,
    pub(super) unsettled: Unsettled,
}

impl<I, Rule: Counted> CounterDriver<I, Rule> {
    /// Returns the time, which never falls.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the time for which a slice's counter may matter to any host. It is computed by the
    /// clock without the monotone bound: after a step back, the window lasts longer.
    fn keep(&self, set: &CounterSet, slice: u64) -> Duration {
        let over = set.slicing.over(slice);
        over.saturating_since(self.clock.clock().now())
            .saturating_add(self.apart)
    }

    pub(super) fn counter_set(
        &self,
        policy: &Policy,
        key: &Key,
        rule: &Rule,
    ) -> Result<CounterSet, error::Error> {
        let own = rule.for_key(&|| key.digest());
        let rule = own.as_ref().unwrap_or(rule);
        CounterSet::of(&self.prefix, policy, key, rule, self.refusals.hasher())
    }

    pub(super) fn resolve(
        &self,
        asks: &[Ask<'_, Rule>],
    ) -> Result<Vec<CounterAsk<Rule>>, error::Error> {
        let resolve = |ask: &Ask<'_, Rule>| {
            self.known.learn(ask.rule())?;
            let set = self.counter_set(ask.policy(), ask.key(), ask.rule())?;
            Ok(ResolvedAsk::new(ask, set))
        };
        asks.iter().map(resolve).collect()
    }
}

/// Returns the units that an ask adds at first: its cost or, if each window is counted alone, the
/// most units that may be granted.
///
/// They never exceed the limit, so that no counter overflows.
fn added<Rule: Counted>(ask: &CounterAsk<Rule>) -> u64 {
    let (cost, spend) = (ask.spend.cost().get(), ask.spend);
    if !spend.is_grant() || ask.at.slicing.older() > 0 {
        return cost;
    }
    let unused = ask.rule.look(None, Timestamp::from_nanos(0));
    cost.max(spend.most().min(unused.remaining().unwrap_or(0)))
}

/// An addition for one ask, and its decision.
struct Spent {
    counter: Box<[u8]>,
    found: SliceTotals,
    decision: Decision,
    /// Units of the addition that stay in the counter: the cost, or all that were granted.
    units: u64,
}

impl<I: Increment, Rule: Counted> CounterDriver<I, Rule> {
    /// Spends all asks, or none.
    pub(super) async fn acquire(&self, asks: &[CounterAsk<Rule>]) -> Result<Decisions, StoreError> {
        let now = self.now();
        if asks.iter().any(|ask| self.expects_refusal(ask, now)) {
            // An expected refusal only reads, so other calls see no addition of it.
            let found = match self.read(asks.iter().map(|ask| &ask.at), now).await {
                Ok(found) => found,
                Err(error) => {
                    // A counter that cannot be read may still accept additions.
                    asks.iter()
                        .for_each(|ask| self.refusals.forget(ask.at.hash));
                    return Err(error);
                }
            };
            let decide = |(found, ask): (&SliceTotals, _)| self.learn(ask, found.step_or_look(ask));
            let decisions: Decisions = found.iter().zip(asks).map(decide).collect();
            if !decisions.is_admitted() {
                return Ok(decisions);
            }
        }
        let now = self.now();
        let mut all: Vec<Spent> = Vec::with_capacity(asks.len());
        for (n, ask) in asks.iter().enumerate() {
            let spent = match self.spend(ask, now).await {
                Ok(spent) => spent,
                Err(error) => {
                    self.undo(&all, asks).await;
                    return Err(error);
                }
            };
            if spent.decision.is_admitted() {
                all.push(spent);
                continue;
            }
            self.undo(&all, asks).await;
            // The other asks get looks.
            let behind = &asks[n + 1..];
            let unasked = if behind.is_empty() {
                Vec::new()
            } else {
                self.read(behind.iter().map(|ask| &ask.at), now).await?
            };
            let before = all
                .iter()
                .zip(asks)
                .map(|(spent, ask)| spent.found.look(ask));
            let behind = unasked
                .iter()
                .zip(behind)
                .map(|(found, ask)| found.step_or_look(ask));
            return Ok(before.chain([spent.decision]).chain(behind).collect());
        }
        Ok(all.iter().map(|spent| spent.decision).collect())
    }

    /// Returns the decisions on calls that spend nothing.
    pub(super) async fn look(&self, asks: &[CounterAsk<Rule>]) -> Result<Decisions, StoreError> {
        let sets = asks.iter().map(|ask| &ask.at);
        let found = self.read(sets, self.now()).await?;
        let look = |(found, ask): (&SliceTotals, _)| found.look(ask);
        Ok(found.iter().zip(asks).map(look).collect())
    }

    /// Returns `true` if a call will probably be refused, by an earlier refusal or because even a
    /// new key would refuse it.
    fn expects_refusal(&self, ask: &CounterAsk<Rule>, now: Timestamp) -> bool {
        let never = || {
            let step = ask.rule.step(&mut None, now, ask.spend.cost());
            !step.decision().is_admitted()
        };
        self.find_refusal(ask, now).1 || never()
    }

    /// Looks up a refusal. Returns `true` if there is one of this cost that has not ended.
    fn find_refusal(&self, ask: &CounterAsk<Rule>, now: Timestamp) -> (Lookup, bool) {
        let call = (ask.spend.cost(), now);
        let (lookup, found) = self
            .refusals
            .find(ask.at.hash, |()| true, call, |_| Some(()));
        (lookup, found.is_some())
    }

    /// Learns from a decision: stores a refusal, also that of the next call if too little is left.
    fn learn(&self, ask: &CounterAsk<Rule>, decision: Decision) -> Decision {
        let (cost, at) = (ask.spend.cost(), decision.at());
        let wait = match (decision.is_admitted(), decision.remaining()) {
            (false, _) => decision.retry_after(),
            (true, Some(remaining)) if remaining >= cost.get() => None,
            (true, _) => Some(decision.more_after()),
        };
        let (lookup, is_known) = self.find_refusal(ask, at);
        match wait {
            // The refusal of a lower cost covers this one.
            Some(_) if is_known => {}
            Some(wait) => {
                let entry = RefusalEntry {
                    key: (),
                    cost,
                    ends_at: at.saturating_add(wait),
                    refusal: (),
                };
                self.refusals.insert(lookup, entry, at);
            }
            None if is_known && decision.is_admitted() => self.refusals.forget(ask.at.hash),
            None => {}
        }
        decision
    }

    /// Adds, and decides by the total. A refused addition is taken back at once, and so are units
    /// above the grant.
    async fn spend(&self, ask: &CounterAsk<Rule>, now: Timestamp) -> Result<Spent, StoreError> {
        let (set, added) = (&ask.at, added(ask));
        let slices = set.slices(now, self.apart);
        let counter = set.counter(slices.own);
        let beside: Vec<_> = slices
            .numbers()
            .filter(|slice| *slice != slices.own)
            .map(|slice| set.counter(slice))
            .collect();
        let keep = self.keep(set, slices.own);
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
        let judged = self.read_late_slices(ask, found).await;
        let judged = judged.map(|found| {
            let granted = found.granted(ask, added);
            let decision = self.learn(ask, found.step(ask, granted));
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

    /// Reads the slices of a sliding window that may have begun during the addition.
    ///
    /// A call that counts in one of them adds and then reads this slice. It either sees this
    /// addition, or has added before it, and then this reading sees that addition. So two calls
    /// never miss each other.
    async fn read_late_slices(
        &self,
        ask: &CounterAsk<Rule>,
        mut found: SliceTotals,
    ) -> Result<SliceTotals, StoreError> {
        let set = &ask.at;
        if set.slicing.older() == 0 {
            return Ok(found);
        }
        let now = self.now();
        if now >= set.slicing.over(found.slices.own) {
            // The addition no longer counts, and calls since then did not see it.
            return Err(StoreError::timeout());
        }
        let late = found
            .slices
            .extend(set.latest(found.slices.own, now, self.apart));
        if !late.is_empty() {
            let late: Vec<_> = late.rev().map(|slice| set.counter(slice)).collect();
            let mut totals = self.totals(&late).await?;
            totals.append(&mut found.totals);
            found.totals = totals;
        }
        Ok(found)
    }

    /// Reads the totals of all these counters at once.
    pub(super) async fn read<'s>(
        &self,
        sets: impl Iterator<Item = &'s CounterSet> + Clone,
        now: Timestamp,
    ) -> Result<Vec<SliceTotals>, StoreError> {
        let slices: Vec<_> = sets
            .clone()
            .map(|set| set.slices(now, self.apart))
            .collect();
        let names: Vec<_> = sets
            .zip(&slices)
            .flat_map(|(set, slices)| slices.numbers().map(|slice| set.counter(slice)))
            .collect();
        let mut totals = self.totals(&names).await?.into_iter();
        let found = slices.into_iter().map(|slices| SliceTotals {
            now,
            slices,
            totals: totals.by_ref().take(slices.len()).collect(),
        });
        Ok(found.collect())
    }

    /// Reads counters, each once: several asks or deltas may be about one, and some servers refuse
    /// a key that comes twice.
    async fn totals(&self, counters: &[Box<[u8]>]) -> Result<Vec<u64>, StoreError> {
        self.counts.readings.add(1);
        let mut keys = counters.to_vec();
        keys.sort_unstable();
        keys.dedup();
        let totals = self.increment.read(&keys).await?;
        if totals.len() != keys.len() {
            return Err(miscounted());
        }
        let total = |counter| keys.binary_search(counter).map_or(0, |index| totals[index]);
        Ok(counters.iter().map(total).collect())
    }

    /// Takes back the additions of earlier asks of the same call.
    async fn undo(&self, all: &[Spent], asks: &[CounterAsk<Rule>]) {
        for (spent, ask) in all.iter().zip(asks) {
            self.refusals.forget(ask.at.hash);
            self.take_back(&spent.counter, spent.units, &self.counts.taken_back)
                .await;
        }
    }

    /// Takes back an addition, and counts that in `done`. If the store fails, the addition stays
    /// for as long as its slice counts.
    async fn take_back(&self, counter: &[u8], amount: u64, done: &Counter) {
        let count = match self.increment.subtract(counter, amount).await {
            Ok(()) => done,
            Err(_) => &self.counts.left_behind,
        };
        count.add(1);
    }
}

/// The most units that one correction adds: far above any limit, and too few to overflow a counter.
const MOST: u64 = 1 << 48;

impl<I: Increment, Rule: Counted> CounterDriver<I, Rule> {
    /// Corrects a charge in the counter that was charged, if that still counts.
    pub(super) async fn settle(
        &self,
        set: &CounterSet,
        charge: &Charge,
        actual: u64,
    ) -> Result<(), StoreError> {
        let now = self.now();
        let slice = set.slicing.slice(charge.at);
        let is_near = charge.at <= now.saturating_add(self.apart);
        if now >= set.slicing.over(slice) || !is_near || actual == charge.cost {
            return Ok(());
        }
        let counter = set.counter(slice);
        match charge.cost.checked_sub(actual) {
            Some(less) => self.increment.subtract(&counter, less).await,
            None => {
                let more = (actual - charge.cost).min(MOST);
                let keep = self.keep(set, slice);
                self.increment
                    .add(&counter, more, keep, &[])
                    .await
                    .map(drop)
            }
        }
    }

    /// Removes all counters of these sets that may matter now to any host.
    pub(super) async fn reset(&self, sets: &[CounterSet]) -> Result<(), StoreError> {
        let now = self.now();
        let counters: Vec<_> = sets
            .iter()
            .flat_map(|set| {
                let slices = set.all(now, self.apart);
                slices.map(|slice| set.counter(slice))
            })
            .collect();
        self.increment.remove(&counters).await
    }
}

#[cold]
fn shrunk() -> StoreError {
    StoreError::other(
        "the store returned a total below what was added to it: expected counters that never wrap, as \
         `Increment` says; see that nobody else writes its keys",
    )
}

#[cold]
pub(super) fn miscounted() -> StoreError {
    StoreError::other(
        "the store returned more totals or fewer than it was asked for: expected one for each counter, in \
         their order; correct its `Increment`",
    )
}
