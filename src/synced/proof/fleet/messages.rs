//! Calls of nodes, and their messages to the store and back.

use std::time::Duration;

use super::{Call, Event, Fleet, Key, Node, Purpose, Refusal, Sent};
use crate::{
    algorithm::Syncable,
    decision::{Charge, Cost},
    synced::{
        Account, Found, Tried, Unsent,
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
        let was_known = self.nodes[node].book.get(place).is_some();
        if let Broken::RefusesAhead = self.network.broken
            && let Some(account) = self.nodes[node].book.get(place)
            && account.unsynced() > 0
        {
            self.refused(key, cost);
            return;
        }
        let book = &mut self.nodes[node].book;
        let account = match book.find(place, &bound, || Account::new(own.clone(), now)) {
            Found::Known(account) | Found::Added(account) => account,
            Found::Store | Found::Crowded => {
                let is_untraced = self.network.broken == Broken::ForgetsCalls;
                if is_untraced {
                    let _ = book.end_in_store(place);
                }
                let message = self.send(node, key, Purpose::Call(rule, cost));
                self.sent[message].is_untraced = is_untraced;
                if was_known {
                    self.wake(node, key);
                }
                return;
            }
        };
        if self.network.broken == Broken::AdmitsBesideStore {
            while account.in_store() > 0 {
                account.end_in_store();
            }
        }
        let asked = (Cost::new(cost).unwrap(), waits >= 4);
        let before = account.due();
        let tried = account.acquire(own, now, asked, &bound);
        let due = account.due();
        self.note_due(node, key, before, due);
        match tried {
            Tried::Decided(decision) if decision.is_admitted() => {
                self.decided_here += 1;
                self.nodes[node].admitted += cost;
                let at = self.now;
                self.keys[key].admissions.push(Admission { at, cost });
            }
            Tried::Decided(_) => {
                self.decided_here += 1;
                self.refused(key, cost);
            }
            Tried::Sync => self.nodes[node].waiting.push(Call {
                waits: waits + 1,
                ..call
            }),
            Tried::Store => {
                self.send(node, key, Purpose::Call(rule, cost));
            }
            Tried::Unreachable => {}
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
            book,
            id,
            telling,
            life: current,
            ..
        } = &mut self.nodes[node];
        let Some(account) = book.get(key as u64) else {
            return;
        };
        if *current != life || telling[key].is_some() || account.due() > now {
            return;
        }
        if self.network.broken == Broken::DropsUnsynced && self.random.up_to(9) == 0 {
            *account = Account::new(self.rules[0].clone(), now);
            self.wake(node, key);
            return;
        }
        let batch = &mut self.batch;
        let unsent = account.send(now, || {
            *batch += 1;
            *batch
        });
        let aged = |unsent: &Unsent<R>| (unsent.clone(), now.saturating_since(unsent.at));
        let mut deltas: Vec<_> = unsent.iter().map(aged).collect();
        if self.network.broken == Broken::NumberedAnew {
            for (unsent, _) in &mut deltas {
                *batch += 1;
                unsent.number = *batch;
            }
        }
        let purpose = Purpose::Tell(*id, deltas);
        telling[key] = Some(self.sent.len());
        self.send(node, key, purpose);
    }

    pub(super) fn send(&mut self, node: usize, key: usize, purpose: Purpose<R>) -> usize {
        let message = self.sent.len();
        self.sent.push(Sent {
            node,
            key,
            life: self.nodes[node].life,
            at: self.local(node),
            purpose,
            is_over: false,
            is_untraced: false,
            answer: None,
            decided: None,
        });
        let timeout = self.network.timeout;
        self.after(timeout, Event::Timeout(message));
        let is_call = matches!(self.sent[message].purpose, Purpose::Call(..));
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
                let last = self.marks.entry((*id, key)).or_default();
                for (unsent, age) in deltas {
                    if unsent.number <= *last && self.network.broken != Broken::CountsTwice {
                        continue;
                    }
                    *last = unsent.number.max(*last);
                    let at = now.saturating_sub(*age);
                    let charge = Charge::new(at, 0);
                    unsent
                        .rule
                        .settle(&mut self.keys[key].state, &charge, at, unsent.units);
                    self.taken_in += unsent.units;
                }
            }
            Purpose::Call(rule, cost) => {
                let (rule, cost) = (&self.rules[*rule], Cost::new(*cost).unwrap());
                let decision = rule.step(&mut self.keys[key].state, now, cost).decision();
                self.sent[message].decided = Some(decision);
                // Of a call that has failed nobody hears that it is admitted.
                let is_heard = !self.sent[message].is_over;
                if decision.is_admitted() && is_heard {
                    let (at, cost) = (self.now, cost.get());
                    self.keys[key].admissions.push(Admission { at, cost });
                    self.taken_in += cost;
                }
            }
        }
        self.sent[message].answer = Some((now, self.keys[key].state.clone()));
        if !self.is_by_chance(self.network.loss) {
            let delay = self.random.up_to(self.network.delay);
            self.after(delay, Event::Answer(message));
        }
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
        if matches!(self.sent[message].purpose, Purpose::Call(..)) {
            self.end_call(message);
            return;
        }
        let (now, bound) = (self.local(node), self.bound(node, 0));
        let mut sent = sent;
        if self.network.broken == Broken::ClockAhead {
            at = at.saturating_add(Duration::from_nanos(2 * self.network.delay + 300_000_000));
            sent = Timestamp::default();
        }
        let Node {
            book,
            telling,
            pulled,
            ..
        } = &mut self.nodes[node];
        telling[key] = None;
        let former = std::mem::replace(&mut pulled[key], state.clone());
        let state = match self.network.broken {
            Broken::OldView => former,
            _ => state,
        };
        let Some(account) = book.get(key as u64) else {
            return;
        };
        let before = account.due();
        account.answered((sent, at, now), state, &bound);
        let due = account.due();
        self.note_due(node, key, before, due);
        self.wake(node, key);
    }

    /// Notes that the store has decided a call, or that it has failed.
    pub(super) fn end_call(&mut self, message: usize) {
        let Sent {
            node,
            key,
            is_untraced,
            ..
        } = self.sent[message];
        if !is_untraced {
            let _ = self.nodes[node].book.end_in_store(key as u64);
        }
        self.wake(node, key);
    }

    pub(super) fn timeout(&mut self, message: usize) {
        if self.is_over(message) {
            return;
        }
        let Sent { node, key, .. } = self.sent[message];
        if matches!(self.sent[message].purpose, Purpose::Call(..)) {
            // The call fails. The store may have admitted it.
            self.end_call(message);
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
        let Node { book, telling, .. } = &mut self.nodes[node];
        telling[key] = None;
        let Some(account) = book.get(key as u64) else {
            return;
        };
        account.clear_due();
        account.failed(now, cuts_off, &bound);
        let due = account.due();
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
