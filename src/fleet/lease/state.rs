//! The leases of one key, and when to ask for more.
//!
//! A node pauses when the fleet asks for more than is refilled. It sees that by the store having
//! less than is refilled during the lease duration, and less than twice what the node needs.
//! Otherwise each node would fetch crumbs: at a demand of 1.2, 0.2 calls a decision in the
//! simulation, with the pause 0.09. To compare with the node's own demand alone would refuse the
//! rest of a burst that the limit allows. The pause is half a lease duration to a whole one for
//! buckets, and half of that for windows, whose units end with them. A key with one request for
//! units in a lease duration does not pause, so it is answered as without leases.

use std::time::Duration;

use super::{
    Terms,
    answer::{DecisionParts, FullAt, LastAnswer},
    grants::{GrantSlice, Grants},
};
use crate::{
    algorithm::Validity,
    decision::{Charge, Cost, Decision, Position},
    fleet::LeaseStats,
    time::Timestamp,
};

/// The way from a node to its store, as its last answers show it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    /// A mean of the last round trips, in nanoseconds.
    pub(crate) round_trip: u64,
    /// Added to a time of this node, it gives that of the store which answered last, modulo 2⁶⁴.
    pub(crate) store_is_ahead: u64,
}

/// The leases of one key under one rule.
#[derive(Debug, Default)]
pub(crate) struct LeaseState {
    grants: Grants,
    demand: Demand,
    known: Option<LastAnswer>,
    /// `true` if the key has not changed otherwise since `known`, so that calls are refused by it.
    is_current: bool,
    full_at: FullAt,
    /// Until then the store is not asked for more: it had less than was asked for.
    pause: Timestamp,
    /// The request to the store that has no answer, for which other calls wait.
    asking: Option<Asking>,
    /// A cost that was refused, and until when, if that does not follow from the last answer.
    refused: Option<Box<(u64, Timestamp)>>,
}

/// A request to the store: at least `cost` units, and up to `up_to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) cost: Cost,
    pub(crate) up_to: u64,
    pub(crate) sent_at: Timestamp,
    /// `true` if no call waits for the answer: all units are for later ones.
    pub(crate) is_prefetch: bool,
    asking: Option<Asking>,
}

/// The requests for whose answer other calls wait: one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    /// That of a call that came before the key had leases.
    First,
    Later,
}

impl Request {
    /// A request for the cost alone, for which no other call waits.
    pub(crate) fn beside(cost: Cost, sent_at: Timestamp) -> Self {
        Self {
            cost,
            up_to: cost.get(),
            sent_at,
            is_prefetch: false,
            asking: None,
        }
    }

    /// A request of a key without leases, for the cost alone.
    pub(crate) fn first(cost: Cost, sent_at: Timestamp) -> Self {
        Self {
            asking: Some(Asking::First),
            ..Self::beside(cost, sent_at)
        }
    }

    /// Returns `true` if the key had no leases when it was made.
    pub(crate) fn is_first(&self) -> bool {
        self.asking == Some(Asking::First)
    }

    /// Returns `true` if other calls wait for its answer.
    pub(crate) fn holds_others(&self) -> bool {
        self.asking.is_some()
    }

    /// Returns `true` if it asks for no more than a call without leases would.
    pub(crate) fn is_exact(&self) -> bool {
        self.up_to == self.cost.get() && !self.is_prefetch
    }
}

/// The next step of a call.
#[derive(Debug)]
pub(crate) enum Step {
    /// Units that are here pay. A request, if there is one, is for later calls, so that they need
    /// not wait.
    Admitted(DecisionParts, Option<Request>),
    /// With the wait before a retry; `None` if the call can never pass.
    Refused(DecisionParts, Option<Duration>),
    /// The store decides.
    Ask(Request),
    /// Another call has asked the store: call again after its answer.
    Wait,
}

impl LeaseState {
    /// Begins while the first request of the key is under way.
    pub(crate) fn during_the_first() -> Self {
        Self {
            asking: Some(Asking::First),
            ..Self::default()
        }
    }

    /// Decides a call, if that is possible without the store. `is_again` if it has waited for the
    /// answer of another call.
    #[inline]
    pub(crate) fn acquire(
        &mut self,
        now: Timestamp,
        cost: Cost,
        is_again: bool,
        (terms, link): (&Terms, Link),
        counts: &mut LeaseStats,
    ) -> Step {
        let units = cost.get();
        // A call that no state admits does not change what is needed.
        if !is_again && units <= terms.capacity {
            self.demand.add(now, units, terms.duration);
        }
        let left = self.grants.expire(now, &mut counts.expired);
        if let Some(left) = left.checked_sub(units) {
            counts.spent += units;
            counts.admitted += 1;
            let position = self.grants.take(units);
            let parts = match &self.known {
                Some(known) => DecisionParts {
                    position,
                    ..known.parts(now, left, self.full_at, terms)
                },
                // The state of the key in the store is not known.
                None => DecisionParts {
                    at: Timestamp::from_nanos(now.as_nanos().wrapping_add(link.store_is_ahead)),
                    position,
                    ..DecisionParts::default()
                },
            };
            return Step::Admitted(parts, self.prefetch(now, left, (terms, link)));
        }
        self.lacking(now, cost, left, terms, counts)
    }

    /// Decides a call for which there are too few units.
    #[inline(never)]
    fn lacking(
        &mut self,
        now: Timestamp,
        cost: Cost,
        left: u64,
        terms: &Terms,
        counts: &mut LeaseStats,
    ) -> Step {
        if let Some((known, wait)) = self.refusal(now, cost.get(), terms) {
            counts.refused += 1;
            let mut parts = known.parts(now, 0, self.full_at, terms);
            if wait.is_none() {
                parts.limit = terms.limit_in_store();
            }
            return Step::Refused(parts, wait);
        }
        if self.asking.is_some() {
            return Step::Wait;
        }
        self.asking = Some(Asking::Later);
        let up_to = match now < self.pause {
            true => 0,
            false => self.wanted(now, terms).saturating_sub(left),
        };
        Step::Ask(Request {
            up_to: up_to.max(cost.get()),
            asking: self.asking,
            ..Request::beside(cost, now)
        })
    }

    /// Takes in the answer of the store to a request, and returns the decision of the call that
    /// waits for it. Units above its cost stay here, or all units if no call waits. `draw` returns
    /// a number up to a greatest one, for the random part of a pause.
    pub(crate) fn answered(
        &mut self,
        request: &Request,
        answer: &Answer,
        (now, terms): (Timestamp, &Terms),
        draw: &mut dyn FnMut(u64) -> u64,
        counts: &mut LeaseStats,
    ) -> Decision {
        let cost = if request.is_prefetch {
            0
        } else {
            request.cost.get()
        };
        let (known, granted) = self.note(request, answer, (now, terms), draw);
        let full_at = FullAt::new(&answer.decision, now);
        let parts = |left, position| DecisionParts {
            position: Some(position),
            ..known.parts(now, left, full_at, terms)
        };
        counts.granted += granted;
        counts.spent += granted.min(cost);
        if granted <= cost {
            let decision = answer.decision.with_limit_as_written(terms.limit);
            // The pause that a refusal begins is one for its caller, too.
            let wait = decision.retry_after().filter(|_| granted == 0);
            let wait = wait.map(|wait| wait.max(self.pause.saturating_since(now)));
            // Others hold units behind this charge on the time axis of a bucket, so what it gives
            // back cannot return to the store. A window takes it back for all nodes.
            return match (wait, answer.validity.rate()) {
                (Some(wait), _) => decision.with_retry_after(Some(wait)),
                (None, Some(_)) if granted > 0 => {
                    let position = answer.slice(granted, request).take(granted).by_store();
                    decision.with_position(position)
                }
                (None, _) => decision,
            };
        }
        // The first units of the grant pay, and none from before: those may have ended while the
        // store was asked. The store has admitted the call itself, also if the answer comes late.
        let mut slice = answer.slice(granted, request);
        let position = slice.take(cost);
        self.grants.insert(slice);
        parts(self.grants.left(), position).admission(request.cost)
    }

    /// Notes the answer of the store. Returns it, and the units that it granted.
    fn note(
        &mut self,
        request: &Request,
        answer: &Answer,
        (now, terms): (Timestamp, &Terms),
        draw: &mut dyn FnMut(u64) -> u64,
    ) -> (LastAnswer, u64) {
        let (decision, cost) = (&answer.decision, request.cost.get());
        let known = LastAnswer::new(decision, now);
        let granted = decision.charge().map_or(0, |charge| charge.cost);
        self.ended(request);
        if answer.is_outdated {
            // It refuses nothing, but its units have its numbers.
            if !self.is_current {
                (self.known, self.full_at) = (Some(known), FullAt::new(decision, now));
            }
            return (known, granted);
        }
        (self.known, self.full_at) = (Some(known), FullAt::new(decision, now));
        self.is_current = true;
        let wait = decision.retry_after().filter(|_| !decision.is_admitted());
        let refused = wait.map(|wait| (cost, now.saturating_add(wait)));
        self.refused = refused
            .filter(|(cost, until)| known.admits_at(*cost) != Some(*until))
            .map(Box::new);
        // Units of a bucket come back all the time, so little is lost by asking for more of them
        // later. Those of a window end with it. A key that has had no grant yet asks again sooner.
        let comes_back = terms.rate.is_some() && self.grants.have_begun();
        let (times, part) = if comes_back { (2, 2) } else { (1, 4) };
        let demand = self.demand.during(now, terms.duration);
        let needed = request.up_to.max(demand).saturating_mul(times);
        // While all nodes together ask for more than is refilled, the store has little, and each
        // would fetch it in crumbs. A burst that the limit allows is no reason for a pause, and
        // neither is a grant that is small because others need some, too.
        let enough = needed.min(terms.refilled);
        let is_scarce = known.remaining.saturating_add(granted) < enough;
        // A key that is asked for once in a while is answered as if there were no leases.
        if is_scarce && demand > cost {
            let least = terms.duration / part;
            let pause = Duration::from_nanos(least.saturating_add(draw(least)));
            self.pause = now.saturating_add(pause);
        }
        (known, granted)
    }

    /// Returns how many units this node would hold: as many as were asked for during the last lease
    /// duration, and no more than others can spare.
    fn wanted(&mut self, now: Timestamp, terms: &Terms) -> u64 {
        self.demand
            .during(now, terms.duration)
            .min(terms.most_held())
    }

    /// Notes that a request is not under way any more: it was answered or failed, or was not sent.
    pub(crate) fn ended(&mut self, request: &Request) {
        self.asking = self.asking.filter(|asking| request.asking != Some(*asking));
    }

    /// Has no call wait any longer for the request that is under way. Its answer may still come.
    pub(crate) fn overdue(&mut self) {
        self.asking = None;
    }

    /// Takes back the last units of a charge, as far as they are valid. Returns how many nobody
    /// gets back.
    pub(crate) fn refund(
        &mut self,
        now: Timestamp,
        units: u64,
        charge: Option<Position>,
        terms: &Terms,
        counts: &mut LeaseStats,
    ) -> u64 {
        counts.spent = counts.spent.wrapping_sub(units);
        let mut slice = GrantSlice::refunded(units, now, charge, terms.rate);
        let ended = slice.expire(now);
        self.grants.insert(slice);
        if terms.ends_early {
            counts.lost += ended;
            return ended;
        }
        counts.expired += ended;
        0
    }

    /// Forgets that units were asked for.
    pub(crate) fn forget_demand(&mut self, units: u64) {
        self.demand.current = self.demand.current.saturating_sub(units);
    }

    /// Spends more units by force, as far as there are any. Returns how many are lacking.
    pub(crate) fn take_by_force(
        &mut self,
        now: Timestamp,
        units: u64,
        counts: &mut LeaseStats,
    ) -> u64 {
        let left = self.grants.expire(now, &mut counts.expired).min(units);
        if left > 0 {
            counts.spent += left;
            self.grants.take(left);
        }
        units - left
    }

    /// Refuses no call by the answers of the store: the state of the key has changed otherwise.
    /// Until the next one, their numbers are the best that are known.
    pub(crate) fn forget_answers(&mut self) {
        self.is_current = false;
        self.refused = None;
        self.pause = Timestamp::default();
    }

    /// Takes out the charges of all grants, and what is left of each. The last one is the first, as
    /// they can be refunded. The units count as lost until they are.
    pub(crate) fn take_out(
        &mut self,
        now: Timestamp,
        counts: &mut LeaseStats,
    ) -> Vec<(Charge, u64)> {
        counts.lost += self.grants.expire(now, &mut counts.expired);
        self.grants.take_out()
    }

    /// Returns the units that are left, with those that have expired unnoticed.
    pub(crate) fn left(&self) -> u64 {
        self.grants.left()
    }

    /// Returns the units that may still be spent.
    #[cfg(test)]
    pub(crate) fn left_at(&self, now: Timestamp) -> u64 {
        self.grants.left_at(now)
    }

    /// Returns `true` if nothing is lost by forgetting the key.
    pub(crate) fn is_idle(&self, now: Timestamp, duration: u64) -> bool {
        self.asking.is_none()
            && self.pause <= now
            && self.demand.ends_at(duration) <= now
            && self.grants.have_ended(now)
    }

    /// Returns a request for later calls, if what is left lasts for less than two round trips.
    #[inline]
    fn prefetch(
        &mut self,
        now: Timestamp,
        left: u64,
        (terms, link): (&Terms, Link),
    ) -> Option<Request> {
        if self.asking.is_some() || now < self.pause {
            return None;
        }
        // As a product, and first of what is at least offered: most calls need no division.
        let duration = terms.duration;
        let lasts = |demand| {
            let soon = u128::from(demand) * u128::from(link.round_trip.saturating_mul(2));
            (u128::from(left) + 1) * u128::from(duration) > soon
        };
        if lasts(self.demand.at_most()) {
            return None;
        }
        if lasts(self.demand.during(now, duration)) {
            return None;
        }
        let up_to = self.wanted(now, terms).saturating_sub(left);
        if up_to < 2 {
            return None;
        }
        self.asking = Some(Asking::Later);
        Some(Request {
            up_to,
            is_prefetch: true,
            asking: self.asking,
            ..Request::beside(Cost::ONE, now)
        })
    }

    /// Returns what is known about a key, and the wait of a call, if it is known that the call is
    /// refused.
    fn refusal(
        &self,
        now: Timestamp,
        cost: u64,
        terms: &Terms,
    ) -> Option<(&LastAnswer, Option<Duration>)> {
        let known = self.known.as_ref().filter(|_| self.is_current)?;
        if cost > terms.capacity {
            return Some((known, None));
        }
        let until = match self.refused.as_deref() {
            Some((refused, until)) if *refused == cost => *until,
            _ => known.admits_at(cost)?,
        };
        let wait = until.max(self.pause).saturating_since(now);
        (!wait.is_zero()).then_some((known, Some(wait)))
    }
}

/// The decision of a store under the tightened rule, and how long its units are valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) decision: Decision,
    pub(crate) validity: Validity,
    /// `true` if the state of the key has changed otherwise since the request, so that no later
    /// call is refused by this answer.
    pub(crate) is_outdated: bool,
}

impl Answer {
    /// Returns the units that were granted to a request.
    pub(super) fn slice(&self, granted: u64, request: &Request) -> GrantSlice {
        let validity = self.validity.shortened();
        GrantSlice::new(granted, request.sent_at, validity, self.decision.charge())
    }
}

/// The units that calls asked for during the last span of some length, whether they were admitted
/// or not.
///
/// Not those that were admitted: a node that is refused would ask for less and less, and others
/// would get its share.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// The beginning of the current span.
    since: Timestamp,
    current: u64,
    before: u64,
}

impl Demand {
    /// Counts units. The span is in nanoseconds, here and below.
    #[inline]
    pub(super) fn add(&mut self, now: Timestamp, units: u64, span: u64) {
        self.advance(now, span);
        self.current = self.current.saturating_add(units);
    }

    /// Returns the units of the last span. Those of the span before the current one count in part.
    pub(super) fn during(&mut self, now: Timestamp, span: u64) -> u64 {
        self.advance(now, span);
        let rest = span.saturating_sub(now.nanos_since(self.since));
        let before = u128::from(self.before) * u128::from(rest) / u128::from(span.max(1));
        self.current.saturating_add(before as u64)
    }

    /// Returns at least what [`during`](Self::during) returns, without a division.
    #[inline]
    pub(super) fn at_most(&self) -> u64 {
        self.current.saturating_add(self.before)
    }

    /// Returns the last instant of which something is counted.
    pub(super) fn ends_at(&self, span: u64) -> Timestamp {
        let spans = Duration::from_nanos(span.saturating_mul(2));
        self.since.saturating_add(spans)
    }

    #[inline]
    fn advance(&mut self, now: Timestamp, span: u64) {
        let elapsed = now.nanos_since(self.since);
        if elapsed < span {
            return;
        }
        if elapsed < span.saturating_mul(2) {
            self.since = self.since.saturating_add(Duration::from_nanos(span));
            self.before = self.current;
        } else {
            self.since = now;
            self.before = 0;
        }
        self.current = 0;
    }
}
