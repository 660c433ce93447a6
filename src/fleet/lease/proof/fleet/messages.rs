//! Calls of nodes, their requests to the store, and corrections of what was charged.

use super::{Broken, Event, Fleet, Node, Open, Purpose, Sent};
use crate::fleet::lease::proof::meter::Admission;
use crate::{
    algorithm::Leasable,
    decision::{Charge, Cost, Decision, Position},
    fleet::lease::{Answer, Link, Request, Step},
    store::Spend,
    time::Timestamp,
};

impl<R: Leasable> Fleet<'_, R> {
    /// Hands the answer of the store to the leases of a node.
    pub(super) fn take_in(&mut self, index: usize, request: &Request, answer: &Answer) -> Decision {
        let now = self.node_now(index);
        let Node {
            state,
            counts,
            random,
            ..
        } = &mut self.nodes[index];
        let draw = &mut |most| random.up_to(most);
        state.answered(request, answer, (now, &self.terms), draw, counts)
    }

    pub(super) fn call(&mut self, index: usize, cost: u64, tries: u64) {
        if self.now < self.nodes[index].frozen_until {
            let until = self.nodes[index].frozen_until;
            return self.at(until, Event::Call(index, cost));
        }
        let now = self.node_now(index);
        let units = Cost::new(cost).unwrap();
        let link = Link {
            round_trip: self.weather.delay,
            store_is_ahead: 0,
        };
        let Node { state, counts, .. } = &mut self.nodes[index];
        match state.acquire(now, units, tries > 0, (&self.terms, link), counts) {
            Step::Admitted(parts, ahead) => {
                let decision = parts.admission(units);
                self.admit(index, self.now, decision.charge().unwrap());
                if let Some(request) = ahead {
                    self.send(index, request, Purpose::Ahead);
                }
            }
            Step::Refused(..) => {}
            Step::Ask(request) => self.send(index, request, Purpose::Call),
            Step::Wait if tries > 4 => self.send(index, Request::beside(units, now), Purpose::Call),
            Step::Wait => self.nodes[index].waiting.push((cost, tries + 1)),
        }
    }

    pub(super) fn admit(&mut self, node: usize, at: u64, charge: Charge) {
        let cost = charge.cost;
        let admission = self.admissions.len();
        self.admissions.push(Admission { at, cost });
        self.nodes[node].open.push(Open { admission, charge });
    }

    pub(super) fn send(&mut self, node: usize, request: Request, purpose: Purpose) {
        self.asked += 1;
        let id = self.sent.len();
        self.sent.push(Sent {
            node,
            life: self.nodes[node].life,
            request,
            purpose,
            is_done: false,
            answered: false,
        });
        for _ in 0..1 + u64::from(self.happens(self.weather.repeat)) {
            if !self.happens(self.weather.loss) {
                let at = self.now + self.random.up_to(self.weather.delay);
                self.at(at, Event::Arrive(id));
            }
        }
        self.at(self.now + self.weather.timeout, Event::Timeout(id));
    }

    pub(super) fn arrive(&mut self, id: usize) {
        let Request { cost, up_to, .. } = self.sent[id].request;
        let now = self.store_now();
        let spend = Spend::exactly(cost).up_to(up_to);
        let rule = match self.sent[id].purpose {
            Purpose::Plain => self.rule,
            _ => &self.tightened,
        };
        let cost = spend.in_state(rule, self.state.as_ref(), now);
        let decision = rule.step(&mut self.state, now, cost).decision();
        if decision.is_admitted() {
            let end = self.now + decision.reset_after().as_nanos() as u64;
            self.openings.push((self.now, end));
        }
        if !self.happens(self.weather.loss) {
            let at = self.now + self.random.up_to(self.weather.delay);
            self.at(at, Event::Answer(id, decision));
        }
    }

    pub(super) fn answer(&mut self, id: usize, answer: Decision) {
        let index = self.sent[id].node;
        let now = self.node_now(index);
        let sent = &mut self.sent[id];
        if sent.life != self.nodes[index].life || sent.answered {
            return;
        }
        sent.answered = true;
        let was_done = std::mem::replace(&mut sent.is_done, true);
        let (purpose, mut request) = (sent.purpose, sent.request);
        if self.weather.broken == Broken::LifeFromAnswer {
            request.sent_at = now;
        }
        // If the call has failed, all units of a late answer can be used.
        request.is_prefetch |= was_done;
        // The store admitted this call itself, when it said so.
        let at = answer.at().as_nanos() - self.store_offset;
        let validity = self.tightened.validity(&answer, self.duration);
        let answered = Answer {
            decision: answer,
            validity,
            is_outdated: false,
        };
        match purpose {
            Purpose::OverCapacity => {
                if let Some(charge) = answer.charge().filter(|_| !was_done) {
                    self.admit(index, at, charge);
                }
                return;
            }
            Purpose::Plain => {
                let admitted = answer.charge().filter(|_| !was_done);
                self.admissions.extend(admitted.map(|charge| Admission {
                    at,
                    cost: charge.cost,
                }));
                return;
            }
            _ if was_done && !self.weather.late_answers => {}
            Purpose::Ahead => {
                self.take_in(index, &request, &answered);
            }
            Purpose::Call => {
                let decision = self.take_in(index, &request, &answered);
                if !was_done {
                    let in_store = answer.charge().filter(|charge| {
                        self.weather.broken == Broken::ReturnAnyway
                            && charge.cost == request.cost.get()
                    });
                    if let Some(charge) = in_store.or(decision.charge()) {
                        self.admit(index, at, charge);
                    }
                }
            }
        }
        self.wake(index);
    }

    pub(super) fn timeout(&mut self, id: usize) {
        let index = self.sent[id].node;
        if self.sent[id].is_done || self.sent[id].life != self.nodes[index].life {
            return;
        }
        self.sent[id].is_done = true;
        if matches!(
            self.sent[id].purpose,
            Purpose::OverCapacity | Purpose::Plain
        ) {
            return;
        }
        let mut request = self.sent[id].request;
        self.nodes[index].state.ended(&request);
        if self.weather.broken == Broken::TimeoutGrants {
            let units = Cost::new(request.up_to.min(self.capacity)).unwrap_or(request.cost);
            let store_now = Timestamp::from_nanos(self.store_offset + self.now);
            let step = self.tightened.step(&mut None, store_now, units);
            let granted = step.decision();
            let validity = self.tightened.validity(&granted, self.duration);
            request.is_prefetch = true;
            let answer = Answer {
                decision: granted,
                validity,
                is_outdated: false,
            };
            self.take_in(index, &request, &answer);
        }
        self.wake(index);
    }

    pub(super) fn wake(&mut self, index: usize) {
        for (cost, tries) in std::mem::take(&mut self.nodes[index].waiting) {
            self.call(index, cost, tries);
        }
    }

    /// Corrects an earlier charge of a node.
    pub(super) fn settle(&mut self, index: usize) {
        let (now, open) = (self.node_now(index), self.nodes[index].open.len());
        if open == 0 || self.now < self.nodes[index].frozen_until {
            return;
        }
        let open = self.random.up_to(open as u64 - 1) as usize;
        let Open { admission, charge } = self.nodes[index].open.swap_remove(open);
        let actual = self.random.up_to(2 * charge.cost);
        self.correct(index, now, admission, charge, actual);
    }

    /// Shuts the node down: it refunds what is left, and another one starts in its place.
    pub(super) fn release(&mut self, index: usize) {
        if self.now < self.nodes[index].frozen_until {
            return;
        }
        let now = self.node_now(index);
        let Node { state, counts, .. } = &mut self.nodes[index];
        for (mut charge, units) in state.take_out(now, counts) {
            if self.weather.broken == Broken::ReturnAnyway {
                let anyway =
                    |position: Position| Position::new(position.end(), position.refunded());
                charge.position = charge.position.map(anyway);
            }
            if !self.happens(self.weather.loss) {
                let (at, actual) = (self.random.up_to(self.weather.delay), charge.cost - units);
                self.at(self.now + at, Event::Correct(charge, actual));
            }
        }
        self.nodes[index].stop();
    }

    /// Corrects the last charge of a node to an actual cost.
    pub(in crate::fleet::lease::proof) fn settle_last(&mut self, index: usize, actual: u64) {
        let now = self.node_now(index);
        if let Some(Open { admission, charge }) = self.nodes[index].open.pop() {
            self.correct(index, now, admission, charge, actual);
        }
    }

    pub(super) fn correct(
        &mut self,
        index: usize,
        now: Timestamp,
        admission: usize,
        charge: Charge,
        actual: u64,
    ) {
        let cost = charge.cost;
        self.admissions[admission].cost = cost.min(actual);
        let (charge, actual) = if !charge.is_of_lease() {
            let charge = match self.weather.broken {
                Broken::ReturnAnyway => charge,
                _ => charge.if_last(),
            };
            (charge, actual)
        } else if actual <= cost {
            let position = match self.weather.broken {
                Broken::RefundLivesAnew => Some(Position::of_lease(
                    now.saturating_add(self.duration + self.duration),
                    0,
                )),
                _ => charge.position,
            };
            let Node { state, counts, .. } = &mut self.nodes[index];
            state.refund(now, cost - actual, position, &self.terms, counts);
            return;
        } else {
            let more = actual - cost;
            let Node { state, counts, .. } = &mut self.nodes[index];
            let lacking = state.take_by_force(now, more, counts);
            if more > lacking {
                self.admissions.push(Admission {
                    at: self.now,
                    cost: more - lacking,
                });
            }
            (Charge::new(charge.at, cost), cost + lacking)
        };
        self.forced += actual.saturating_sub(cost);
        if actual == cost || actual > cost && self.weather.broken == Broken::DebtForgotten {
            return;
        }
        if !self.happens(self.weather.loss) {
            let at = self.now + self.random.up_to(self.weather.delay);
            self.at(at, Event::Correct(charge, actual));
        }
    }
}
