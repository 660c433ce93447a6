//! Calls of nodes, and their messages to the store and back.

use std::time::Duration;

use super::{Call, Event, Fleet, Key, Node, Purpose, Refusal, Sent};
use crate::{
    algorithm::Syncable,
    decision::{Charge, Cost},
    fleet::sync::{
        KeyView, Unsent, ViewOutcome,
        proof::{meter::Admission, network::Broken},
    },
    time::Timestamp,
};

impl<R: Syncable> Fleet<'_, R> {
    pub(super) fn call(&mut self, node: usize, call: Call) {
        let Call {
            key,
            cost,
            rule,
            waits,
        } = call;
        let (now, bound, place) = (self.local(node), self.bound(node, rule), key as u64);
        let own = &self.rules[rule];
        if let Broken::RefusesAhead = self.network.broken
            && let Some(view) = self.nodes[node].views.get(place)
            && view.unsynced() > 0
        {
            self.refused(key, cost);
            return;
        }
        let views = &mut self.nodes[node].views;
        let found = views.find(place, &bound, now, || KeyView::new(own.clone(), now));
        let Some((view, _)) = found else {
            let is_untraced = self.network.broken == Broken::ForgetsCalls;
            if is_untraced {
                let _ = views.end_in_store(place);
            }
            if self.network.broken == Broken::ForgetsView {
                let _ = views.remove(place);
            }
            let message = self.send(node, key, Purpose::Call(rule, cost));
            self.sent[message].is_untraced = is_untraced;
            return;
        };
        if self.network.broken == Broken::AdmitsBesideStore {
            while view.in_store > 0 {
                view.end_in_store();
            }
        }
        let asked = (Cost::new(cost).unwrap(), waits >= 4);
        let before = view.due();
        let tried = view.acquire(own, now, asked, &bound);
        let due = view.due();
        self.note_due(node, key, before, due);
        match tried {
            ViewOutcome::Decided(decision) if decision.is_admitted() => {
                self.decided_here += 1;
                self.nodes[node].admitted += cost;
                let admission = self.admit(key, cost);
                if let Some(charge) = decision.charge() {
                    self.open(node, (key, rule), admission, (charge, false));
                }
            }
            ViewOutcome::Decided(_) => {
                self.decided_here += 1;
                self.refused(key, cost);
            }
            ViewOutcome::Sync => self.nodes[node].waiting.push(Call {
                waits: waits + 1,
                ..call
            }),
            ViewOutcome::Store => {
                self.send(node, key, Purpose::Call(rule, cost));
            }
            ViewOutcome::Unreachable => {}
        }
    }

    pub(super) fn refused(&mut self, key: usize, cost: u64) {
        let Key {
            admissions,
            refusals,
            ..
        } = &mut self.keys[key];
        refusals.push(Refusal {
            at: self.now,
            cost,
            after: admissions.len(),
        });
    }

    pub(super) fn note_due(&mut self, node: usize, key: usize, before: Timestamp, due: Timestamp) {
        if due < before {
            let wait = due.saturating_since(self.local(node)).as_nanos() as u64;
            self.after(wait, Event::Due(node, key, self.nodes[node].life));
        }
    }

    pub(super) fn tell(&mut self, node: usize, key: usize, life: u64) {
        let now = self.local(node);
        let Node {
            views,
            id,
            pushing,
            pushed,
            life: current,
            ..
        } = &mut self.nodes[node];
        let Some(view) = views.get(key as u64) else {
            return;
        };
        if *current != life || pushing[key].is_some() {
            return;
        }
        let due = view.due();
        if due > now {
            // Its clock has stepped back.
            self.note_due(node, key, Timestamp::MAX, due);
            return;
        }
        let id = *id;
        if self.network.broken == Broken::DropsUnsynced && self.random.up_to(9) == 0 {
            *view = KeyView::new(self.rules[0].clone(), now);
            self.wake(node, key);
            return;
        }
        let batch = &mut self.batch;
        let unsent = view.send(now, || {
            *batch += 1;
            *batch
        });
        let from_first = self.network.broken == Broken::RefundFromFirst;
        let aged = |unsent: &Unsent<R>| {
            let at = if from_first { unsent.first } else { unsent.at };
            (unsent.clone(), now.saturating_since(at))
        };
        let mut deltas: Vec<_> = unsent.iter().map(aged).collect();
        if self.network.broken == Broken::NumberedAnew {
            for (unsent, _) in &mut deltas {
                *batch += 1;
                unsent.number = *batch;
            }
        }
        let numbered = |(unsent, _): &(Unsent<R>, _)| (unsent.number, unsent.units);
        pushed[key] = deltas.iter().map(numbered).collect();
        let purpose = Purpose::Tell(id, deltas);
        pushing[key] = Some(self.sent.len());
        self.send(node, key, purpose);
    }

    pub(super) fn send(&mut self, node: usize, key: usize, purpose: Purpose<R>) -> usize {
        let message = self.sent.len();
        self.sent.push(Sent {
            node,
            key,
            life: self.nodes[node].life,
            generation: self.nodes[node].generations[key],
            at: self.local(node),
            true_at: self.now,
            purpose,
            is_over: false,
            is_untraced: false,
            answer: None,
            decided: None,
            admission: None,
        });
        let timeout = self.network.timeout;
        self.after(timeout, Event::Timeout(message));
        let is_call = !matches!(self.sent[message].purpose, Purpose::Tell(..));
        let copies = 1 + u64::from(!is_call && self.is_by_chance(self.network.repeat));
        for _ in 0..copies {
            if !self.is_by_chance(self.network.loss) {
                let delay = self.random.up_to(self.network.delay);
                self.after(delay, Event::Arrive(message));
            }
        }
        message
    }

    pub(super) fn arrive(&mut self, message: usize) {
        if self.now < self.down_until {
            return;
        }
        let (now, key) = (self.store_now(), self.sent[message].key);
        match &self.sent[message].purpose {
            Purpose::Tell(id, deltas) => {
                let (id, deltas) = (*id, deltas.clone());
                for (unsent, age) in deltas {
                    self.take_delta((id, key), &unsent, now.saturating_sub(age));
                }
            }
            Purpose::Call(rule, cost) => {
                let (rule, cost) = (*rule, *cost);
                self.decide(message, &mut None, rule, cost);
            }
            Purpose::Plain(cost) => {
                let (cost, mut apart) = (*cost, None);
                if self.network.broken == Broken::PlainApart {
                    apart = Some(None);
                }
                self.decide(message, &mut apart, 0, cost);
            }
        }
        self.sent[message].answer = Some((now, self.keys[key].state.clone()));
        if !self.is_by_chance(self.network.loss) {
            let delay = self.random.up_to(self.network.delay);
            self.after(delay, Event::Answer(message));
        }
    }

    /// Takes in a delta, unless it is known already.
    fn take_delta(&mut self, (id, key): (u64, usize), unsent: &Unsent<R>, at: Timestamp) {
        let last = self.sequence_numbers.entry((id, key)).or_default();
        if unsent.number <= *last && self.network.broken != Broken::CountsTwice {
            return;
        }
        *last = unsent.number.max(*last);
        let charge = Charge::new(at, 0);
        unsent
            .rule
            .settle(&mut self.keys[key].state, &charge, at, unsent.units);
        let seen = self.seen.entry((id, key)).or_default();
        // After a reset, the store takes in again what it had before.
        if unsent.number > *seen || self.network.broken == Broken::CountsTwice {
            self.taken_in += unsent.units;
        }
        *seen = unsent.number.max(*seen);
        let numbered = (id, unsent.number);
        self.keys[key].allowance.came_late(numbered);
    }

    /// Has the store decide a call, by the state of the key or by one apart from it.
    fn decide(
        &mut self,
        message: usize,
        apart: &mut Option<Option<R::State>>,
        rule: usize,
        cost: u64,
    ) {
        let (now, key) = (self.store_now(), self.sent[message].key);
        let state = apart.as_mut().unwrap_or(&mut self.keys[key].state);
        let step = self.rules[rule].step(state, now, Cost::new(cost).unwrap());
        let decision = step.decision();
        self.sent[message].decided = Some(decision);
        // Of a call that has failed nobody hears that it is admitted.
        let is_heard = !self.sent[message].is_over;
        if decision.is_admitted() && is_heard {
            self.sent[message].admission = Some(self.admit(key, cost));
            self.taken_in += cost;
        }
    }

    /// Notes that a call was admitted, and returns its place.
    fn admit(&mut self, key: usize, cost: u64) -> usize {
        let at = self.metered_at();
        self.charged += cost;
        let admissions = &mut self.keys[key].admissions;
        admissions.push(Admission { at, cost });
        admissions.len() - 1
    }

    pub(super) fn is_over(&mut self, message: usize) -> bool {
        let Sent { node, life, .. } = self.sent[message];
        std::mem::replace(&mut self.sent[message].is_over, true) || self.nodes[node].life != life
    }

    pub(super) fn answer(&mut self, message: usize) {
        if self.now < self.down_until || self.is_over(message) {
            return;
        }
        let Some((at, state)) = self.sent[message].answer.clone() else {
            return;
        };
        self.take_in(message, at, state);
    }

    pub(super) fn take_in(&mut self, message: usize, mut at: Timestamp, state: Option<R::State>) {
        let Sent {
            node,
            key,
            at: sent,
            ..
        } = self.sent[message];
        match self.sent[message].purpose {
            Purpose::Call(..) | Purpose::Plain(_) => {
                self.end_call(message);
                self.open_in_store(message);
                return;
            }
            Purpose::Tell(..) => {}
        }
        if self.is_of_before(message) {
            return;
        }
        self.known_at = self.known_at.max(at);
        if self.sent[message].true_at > self.nodes[node].stepped_at {
            self.nodes[node].is_misled[key] = false;
        }
        let (now, bound) = (self.local(node), self.bound(node, 0));
        let mut sent = sent;
        if self.network.broken == Broken::KeepsClock {
            // As if it had been asked for long ago, and could be of any time.
            sent = Timestamp::default();
        }
        if self.network.broken == Broken::ClockAhead {
            at = at.saturating_add(Duration::from_nanos(2 * self.network.delay + 300_000_000));
            sent = Timestamp::default();
        }
        let Node {
            views,
            pushing,
            pushed,
            pulled,
            ..
        } = &mut self.nodes[node];
        pushing[key] = None;
        pushed[key].clear();
        let former = std::mem::replace(&mut pulled[key], state.clone());
        let state = match self.network.broken {
            Broken::OldView => former,
            _ => state,
        };
        let Some(view) = views.get(key as u64) else {
            return;
        };
        let before = view.due();
        view.answered((sent, at, now), state, &bound);
        let due = view.due();
        self.note_due(node, key, before, due);
        self.wake(node, key);
    }

    /// Returns `true` if a message was sent before the key was reset, whose answer is none for the
    /// view of after that.
    fn is_of_before(&self, message: usize) -> bool {
        let Sent {
            node,
            key,
            generation,
            ..
        } = self.sent[message];
        generation != self.nodes[node].generations[key]
            && self.network.broken != Broken::AnswerOfBefore
    }

    /// Notes that the store has decided a call, or that it has failed.
    pub(super) fn end_call(&mut self, message: usize) {
        let Sent {
            node,
            key,
            is_untraced,
            ref purpose,
            ..
        } = self.sent[message];
        if matches!(purpose, Purpose::Plain(_)) {
            return;
        }
        if !is_untraced {
            let _ = self.nodes[node].views.end_in_store(key as u64);
        }
        self.wake(node, key);
    }

    pub(super) fn timeout(&mut self, message: usize) {
        if self.is_over(message) {
            return;
        }
        let Sent { node, key, .. } = self.sent[message];
        if !matches!(self.sent[message].purpose, Purpose::Tell(..)) {
            // The call fails. The store may have admitted it.
            self.end_call(message);
            return;
        }
        if self.is_of_before(message) {
            return;
        }
        if self.network.broken == Broken::LossIsTaken {
            let at = self.store_now();
            let state = self.keys[key].state.clone();
            self.take_in(message, at, state);
            return;
        }
        let (now, bound) = (self.local(node), self.bound(node, 0));
        let cuts_off = self.network.cuts_off;
        let Node { views, pushing, .. } = &mut self.nodes[node];
        pushing[key] = None;
        let Some(view) = views.get(key as u64) else {
            return;
        };
        view.clear_due();
        view.failed(now, cuts_off, &bound);
        let due = view.due();
        self.note_due(node, key, Timestamp::MAX, due);
        if cuts_off {
            self.wake(node, key);
        }
    }

    pub(super) fn wake(&mut self, node: usize, key: usize) {
        if self.nodes[node].waiting.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut self.nodes[node].waiting);
        let (woken, others): (Vec<_>, _) = waiting.into_iter().partition(|call| call.key == key);
        self.nodes[node].waiting = others;
        for call in woken {
            self.call(node, call);
        }
    }
}
