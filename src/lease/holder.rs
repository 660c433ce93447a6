//! The leases of one key, and when to ask for more.

use std::time::Duration;

use smallvec::SmallVec;

use super::{Answer, Counts, known::Known, offered::Offered, portion::Portion};
use crate::{
    decision::{Charge, Cost, Decision, Position, Verdict},
    quota::Quota,
    random::Random,
    time::Timestamp,
};

/// The most grants and refunds of a key that are held apart.
const MOST_PORTIONS: usize = 8;

/// How far ahead units are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// What is asked for at once is what was offered during this time.
    pub(crate) hold: Duration,
    /// How long the store took to answer lately.
    pub(crate) round_trip: Duration,
}

/// The leases of one key under one rule.
#[derive(Debug, Default)]
pub(crate) struct Holder {
    /// The one that ends first is the first.
    portions: SmallVec<[Portion; 1]>,
    offered: Offered,
    /// `true` while a request to the store has no answer.
    is_asking: bool,
    known: Option<Known>,
    /// The rate at which units end, if they end one by one.
    rate: Option<Quota>,
    /// `true` if the rate is known.
    has_granted: bool,
    /// Until then the store is not asked for more: it had less than was asked for.
    pause: Timestamp,
}

/// A request to the store: at least `cost` units, and up to `up_to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) cost: Cost,
    pub(crate) up_to: u64,
    pub(crate) sent_at: Timestamp,
}

impl Request {
    /// A request for the cost alone.
    pub(crate) fn exactly(cost: Cost, sent_at: Timestamp) -> Self {
        Self {
            cost,
            up_to: cost.get(),
            sent_at,
        }
    }

    /// Returns `true` if it asks for no more than a call without leases would.
    pub(crate) fn is_exact(&self) -> bool {
        self.up_to == self.cost.get()
    }
}

/// What to do with a call.
#[derive(Debug)]
pub(crate) enum Step {
    /// It is decided. A request, if there is one, is for later calls, so that they need not wait.
    Decided(Decision, Option<Request>),
    /// The store decides.
    Ask(Request),
    /// Another call has asked the store: call again after its answer.
    Wait,
}

impl Holder {
    /// Decides a call, if that is possible without the store. `is_again` if it has waited for the answer of another call.
    #[inline]
    pub(crate) fn acquire(
        &mut self,
        now: Timestamp,
        cost: Cost,
        is_again: bool,
        plan: &Plan,
        counts: &mut Counts,
    ) -> Step {
        if !is_again {
            // A call that no state admits says nothing about what is needed.
            let is_above = |known: &Known| known.is_above_limit(cost.get());
            if !self.known.as_ref().is_some_and(is_above) {
                self.offered.add(now, cost.get(), plan.hold);
            }
        }
        let left = self.expire(now, counts);
        if let Some(left) = left.checked_sub(cost.get()) {
            counts.spent += cost.get();
            counts.from_leases += 1;
            let decision = self.spend(now, cost.get());
            return Step::Decided(decision, self.prefetch(now, left, plan));
        }
        if let Some(refusal) = self.refusal(now, cost.get()) {
            counts.refused_here += 1;
            return Step::Decided(refusal, None);
        }
        if self.is_asking {
            return Step::Wait;
        }
        self.is_asking = true;
        let wanted = self.offered.during(now, plan.hold).saturating_sub(left);
        let up_to = if now < self.pause { 0 } else { wanted };
        Step::Ask(Request {
            cost,
            up_to: up_to.max(cost.get()),
            sent_at: now,
        })
    }

    /// Takes in the answer of the store to the request of a call, and returns the decision of the call. Units above its cost stay here.
    pub(crate) fn answered(
        &mut self,
        now: Timestamp,
        request: &Request,
        answer: &Answer,
        (plan, random): (&Plan, &mut Random),
        counts: &mut Counts,
    ) -> Decision {
        let cost = request.cost.get();
        let granted = self.received(now, request, answer, (plan, random), counts);
        counts.spent += granted.min(cost);
        if granted <= cost {
            let decision = answer.decision;
            // The pause that a refusal begins is one for its caller, too.
            let wait = decision.retry_after().filter(|_| granted == 0);
            return match wait.map(|wait| wait.max(self.pause.saturating_since(now))) {
                Some(wait) => decision.with_retry_after(Some(wait)),
                None => decision,
            };
        }
        // The first units of the grant pay, and none from before: those may have ended while the store was asked. The store has admitted
        // the call itself, also if the answer comes late.
        let mut portion = self.portion(granted, request, answer);
        let position = portion.take(cost);
        self.keep(portion, counts);
        self.admission(now, cost, Some(position))
    }

    /// Takes in the answer to a request that no call waits for. All units stay here.
    pub(crate) fn prefetched(
        &mut self,
        now: Timestamp,
        request: &Request,
        answer: &Answer,
        (plan, random): (&Plan, &mut Random),
        counts: &mut Counts,
    ) {
        let granted = self.received(now, request, answer, (plan, random), counts);
        let portion = self.portion(granted, request, answer);
        self.keep(portion, counts);
    }

    fn portion(&mut self, units: u64, request: &Request, answer: &Answer) -> Portion {
        self.rate = answer.validity.rate();
        self.has_granted = true;
        let portion = Portion::new(units, request.sent_at, answer.validity.shortened());
        portion.charged(answer.decision.charge())
    }

    /// Notes what the store said. Returns the units that it granted.
    fn received(
        &mut self,
        now: Timestamp,
        request: &Request,
        answer: &Answer,
        (plan, random): (&Plan, &mut Random),
        counts: &mut Counts,
    ) -> u64 {
        let cost = request.cost.get();
        let known = Known::new(answer, cost, now);
        let charge = answer.decision.charge();
        let granted = charge.map_or(0, |charge| charge.cost);
        self.is_asking = false;
        self.known = Some(known);
        counts.granted += granted;
        // Units of a bucket come back all the time, so little is lost by asking for more of them later. Those of a window end with it.
        let (times, part) = if self.rate.is_some() { (2, 2) } else { (1, 4) };
        let offered = self.offered.during(now, plan.hold);
        let needed = request.up_to.max(offered).saturating_mul(times);
        // While all nodes together ask for more than is refilled, the store has little, and each would fetch it in crumbs. A burst that the
        // limit allows is no reason for a pause, and neither is a grant that is small because others need some, too.
        let enough = needed.min(known.refilled(plan.hold));
        let is_scarce = known.remaining().saturating_add(granted) < enough;
        // A key that is asked for once in a while is answered as if there were no leases.
        if is_scarce && offered > cost {
            let least = u64::try_from(plan.hold.as_nanos() / part).unwrap_or(u64::MAX);
            let pause = Duration::from_nanos(least.saturating_add(random.up_to(least)));
            self.pause = now.saturating_add(pause);
        }
        granted
    }

    /// Notes that a request has failed, or that nobody waits for its answer.
    pub(crate) fn failed(&mut self) {
        self.is_asking = false;
    }

    /// Takes back the last units of a charge that a lease paid for, as far as they are valid.
    pub(crate) fn give_back(
        &mut self,
        now: Timestamp,
        units: u64,
        charge: Option<Position>,
        counts: &mut Counts,
    ) {
        counts.spent = counts.spent.wrapping_sub(units);
        if !self.has_granted {
            // The key was forgotten since, and with it how its units end.
            counts.expired += units;
            return;
        }
        let portion = Portion::given_back(units, now, charge, self.rate);
        self.keep(portion, counts);
    }

    /// Spends more units by force, as far as there are any. Returns how many are lacking.
    pub(crate) fn take_by_force(&mut self, now: Timestamp, units: u64, counts: &mut Counts) -> u64 {
        let left = self.expire(now, counts).min(units);
        if left > 0 {
            counts.spent += left;
            self.take(left);
        }
        units - left
    }

    /// Forgets what the store said: the state of the key has changed otherwise.
    pub(crate) fn forget_answers(&mut self) {
        self.known = None;
        self.pause = Timestamp::default();
    }

    /// Drops all units. Returns how many these were.
    pub(crate) fn clear(&mut self, now: Timestamp, counts: &mut Counts) -> u64 {
        let left = self.expire(now, counts);
        self.portions.clear();
        left
    }

    /// Takes out the charges of all grants, and what is left of each. The last one is the first, as they can be given back. The units
    /// count as lost until they are.
    pub(crate) fn take_out(&mut self, now: Timestamp, counts: &mut Counts) -> Vec<(Charge, u64)> {
        counts.lost += self.expire(now, counts);
        let charged = |portion: Portion| {
            let units = portion.units();
            Some((portion.into_charge()?.if_last(), units))
        };
        self.portions.drain(..).rev().filter_map(charged).collect()
    }

    /// Returns the units that are left, without those that have expired unnoticed.
    pub(crate) fn left(&self) -> u64 {
        self.portions.iter().map(Portion::units).sum()
    }

    /// Returns the units that may still be spent.
    #[cfg(test)]
    pub(crate) fn left_at(&self, now: Timestamp) -> u64 {
        let left = |portion: &Portion| portion.valid_at(now);
        self.portions.iter().map(left).sum()
    }

    /// Returns `true` if nothing is lost by forgetting the key.
    pub(crate) fn is_idle(&self, now: Timestamp, hold: Duration) -> bool {
        !self.is_asking
            && self.pause <= now
            && self.offered.ends_at(hold) <= now
            && self.portions.iter().all(|portion| portion.ends_at() <= now)
    }

    /// Drops units that are not valid any more. Returns how many are left.
    #[inline]
    fn expire(&mut self, now: Timestamp, counts: &mut Counts) -> u64 {
        let (mut left, mut is_one_empty) = (0, false);
        for portion in &mut self.portions {
            counts.expired += portion.expire(now);
            is_one_empty |= portion.units() == 0;
            left += portion.units();
        }
        if is_one_empty {
            self.portions.retain(|portion| portion.units() > 0);
        }
        left
    }

    /// Spends units, which are there, from what ends first. Returns the position of those.
    #[inline]
    fn take(&mut self, units: u64) -> Option<Position> {
        let (mut rest, mut position, mut is_one_empty) = (units, None, false);
        for portion in &mut self.portions {
            let part = rest.min(portion.units());
            let taken = portion.take(part);
            // Units of several grants are given back as if they ended with the first of them.
            position = position.or(Some(taken));
            is_one_empty |= portion.units() == 0;
            rest -= part;
            if rest == 0 {
                break;
            }
        }
        if is_one_empty {
            self.portions.retain(|portion| portion.units() > 0);
        }
        position
    }

    /// Admits a call with units that are here.
    #[inline]
    fn spend(&mut self, now: Timestamp, cost: u64) -> Decision {
        let position = self.take(cost);
        self.admission(now, cost, position)
    }

    #[inline]
    fn admission(&self, now: Timestamp, cost: u64, position: Option<Position>) -> Decision {
        match (&self.known, position) {
            (Some(known), _) => known.decision(Verdict::Allow, now, cost, (self.left(), position)),
            (None, Some(position)) => {
                Decision::new(Verdict::Allow, now, cost).with_position(position)
            }
            (None, None) => Decision::new(Verdict::Allow, now, cost),
        }
    }

    /// Returns a request for later calls, if what is left lasts for less than two round trips.
    #[inline]
    fn prefetch(&mut self, now: Timestamp, left: u64, plan: &Plan) -> Option<Request> {
        if self.is_asking || now < self.pause {
            return None;
        }
        // As a product, and first of what is at least offered: most calls need no division.
        let lasts = |offered| {
            let soon = u128::from(offered).saturating_mul(2 * plan.round_trip.as_nanos());
            (u128::from(left) + 1).saturating_mul(plan.hold.as_nanos()) > soon
        };
        if lasts(self.offered.at_most()) {
            return None;
        }
        let offered = self.offered.during(now, plan.hold);
        if lasts(offered) {
            return None;
        }
        let up_to = offered.saturating_sub(left);
        if up_to < 2 {
            return None;
        }
        self.is_asking = true;
        Some(Request {
            cost: Cost::ONE,
            up_to,
            sent_at: now,
        })
    }

    /// Returns the refusal of a call, if that is known.
    fn refusal(&self, now: Timestamp, cost: u64) -> Option<Decision> {
        let known = self.known.as_ref()?;
        let refusal = || known.decision(Verdict::Refuse, now, cost, (0, None));
        if known.is_above_limit(cost) {
            return Some(refusal().with_retry_after(None));
        }
        let until = known.admits_at(cost)?.max(self.pause);
        let wait = until.saturating_since(now);
        (!wait.is_zero()).then(|| refusal().with_retry_after(Some(wait)))
    }

    /// Keeps units, sorted by their ends.
    fn keep(&mut self, portion: Portion, counts: &mut Counts) {
        if portion.units() == 0 {
            return;
        }
        if self.portions.len() >= MOST_PORTIONS {
            counts.expired += self.portions.remove(0).units();
        }
        let ends_before = |other: &Portion| other.ends_at() <= portion.ends_at();
        let at = self.portions.partition_point(ends_before);
        self.portions.insert(at, portion);
    }
}
