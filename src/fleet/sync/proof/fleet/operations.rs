//! Corrections, grants, resets, steps of clocks, and nodes without the wrapper: with what each of
//! them allows.

use super::{Call, Event, Fleet, Node, Operation, Purpose, Sent};
use crate::{
    algorithm::Syncable,
    decision::Charge,
    fleet::sync::{estimates::remaining, proof::network::Broken},
};

/// A charge that may be corrected.
pub(super) struct Open {
    key: usize,
    rule: usize,
    admission: usize,
    charge: Charge,
    /// `true` if a node without the wrapper made it.
    is_plain: bool,
    /// `true` if a clock had stepped, so that it may have the wrong time.
    is_misled: bool,
}

impl<R: Syncable> Fleet<'_, R> {
    fn counts(&mut self, operation: Operation) {
        self.operations[operation as usize] += 1;
    }

    /// Returns 1 if the meter allows a unit less of an operation.
    pub(super) fn spared(&self, operation: Operation) -> u64 {
        u64::from(self.network.spared == Some(operation))
    }

    /// Notes the charge of a call.
    pub(super) fn open(
        &mut self,
        node: usize,
        (key, rule): (usize, usize),
        admission: usize,
        (charge, is_plain): (Charge, bool),
    ) {
        let Node {
            open, is_misled, ..
        } = &mut self.nodes[node];
        open.push(Open {
            key,
            rule,
            admission,
            charge,
            is_plain,
            is_misled: is_misled[key],
        });
    }

    /// Notes the charge of a call that the store has decided.
    pub(super) fn open_in_store(&mut self, message: usize) {
        let Sent {
            node,
            key,
            ref purpose,
            decided,
            admission,
            ..
        } = self.sent[message];
        let (rule, is_plain) = match purpose {
            Purpose::Call(rule, _) => (*rule, false),
            _ => (0, true),
        };
        let charge = decided.and_then(|decided| decided.charge());
        if let (Some(charge), Some(admission)) = (charge, admission) {
            self.open(node, (key, rule), admission, (charge, is_plain));
        }
    }

    /// Has the store decide a call of a node without the wrapper.
    pub(super) fn call_plainly(&mut self, node: usize, call: Call) {
        self.counts(Operation::Plain);
        self.send(node, call.key, Purpose::Plain(call.cost));
    }

    /// Corrects any of the charges of a node, mostly to less.
    pub(super) fn settle_any(&mut self, node: usize) {
        let open = self.nodes[node].open.len() as u64;
        if open == 0 {
            return;
        }
        // Mostly one of the last.
        let back = self.random.up_to(open - 1) >> self.random.up_to(4);
        let open = self.nodes[node].open.remove((open - 1 - back) as usize);
        let cost = open.charge.cost;
        let actual = match self.random.up_to(5) {
            0 => cost + 1 + self.random.up_to(cost),
            _ => self.random.up_to(cost - 1),
        };
        self.settle(node, open, actual);
    }

    /// Corrects a charge.
    fn settle(&mut self, node: usize, open: Open, actual: u64) {
        let Open {
            key,
            rule,
            admission,
            charge,
            is_plain,
            is_misled,
        } = open;
        let cost = charge.cost;
        let less = cost.saturating_sub(actual);
        self.counts(match less {
            0 => Operation::Surcharge,
            _ => Operation::Refund,
        });
        let spared = self.spared(Operation::Refund);
        let metered = &mut self.keys[key];
        metered.admissions[admission].cost = cost.min(actual + spared);
        if is_misled {
            metered.allowance.add(less);
        }
        if is_plain {
            self.correct_later(key, rule, charge, actual);
            return;
        }
        self.correct_here(node, (key, rule), charge, actual, Broken::RefundsTwice);
    }

    /// Corrects a charge as the wrapper does: by what the node knows, and the rest in the store.
    fn correct_here(
        &mut self,
        node: usize,
        (key, rule): (usize, usize),
        mut charge: Charge,
        actual: u64,
        twice: Broken,
    ) {
        let (now, bound, cost) = (self.local(node), self.bound(node, rule), charge.cost);
        let Node {
            views, is_closed, ..
        } = &mut self.nodes[node];
        let is_here = actual <= cost || !*is_closed;
        let known = views.get(key as u64);
        let Some(view) = known.filter(|known| is_here && known.knows()) else {
            if bound.most > 0 {
                charge.position = None;
            }
            self.correct_later(key, rule, charge, actual);
            return;
        };
        let before = view.due();
        let less = view.settle(&self.rules[rule], &charge, actual, now, &bound);
        let due = view.due();
        self.note_due(node, key, before, due);
        let all = cost.saturating_sub(actual);
        self.charged += actual.saturating_sub(cost);
        self.charged -= all - less;
        let less = match self.network.broken == twice {
            true => all,
            false => less,
        };
        if less > 0 {
            charge.position = None;
            self.correct_later(key, rule, charge, cost - less);
        }
    }

    /// Has the store correct a charge, once at most.
    fn correct_later(&mut self, key: usize, rule: usize, charge: Charge, actual: u64) {
        if !self.is_by_chance(self.network.loss) {
            let delay = self.random.up_to(self.network.delay);
            self.after(delay, Event::Correct(key, rule, charge, actual));
        }
    }

    /// Corrects a charge in the store.
    pub(super) fn correct(&mut self, key: usize, rule: usize, charge: &Charge, actual: u64) {
        if self.now >= self.down_until {
            let (now, state) = (self.store_now(), &mut self.keys[key].state);
            self.rules[rule].settle(state, charge, now, actual);
        }
    }

    /// Grants units to a key, as a limiter does.
    pub(super) fn grant(&mut self, node: usize, key: usize, units: u64) {
        let (now, rule) = (self.local(node), &self.rules[0]);
        let view = self.nodes[node].views.get(key as u64);
        let known = view.and_then(|view| view.look(rule, now));
        let look =
            known.unwrap_or_else(|| rule.look(self.keys[key].state.as_ref(), self.store_now()));
        let (remaining, limit) = (look.remaining().unwrap_or(0), look.limit().unwrap_or(0));
        if remaining >= limit && look.reset_after().is_zero() {
            return;
        }
        let (units, slack) = (units.min(limit), rule.grant_slack().unwrap_or(0));
        let charge = Charge::new(look.at(), units + slack);
        self.counts(Operation::Grant);
        let spared = self.spared(Operation::Grant);
        self.keys[key].allowance.add(units - spared);
        self.correct_here(node, (key, 0), charge, slack, Broken::GrantsTwice);
    }

    /// Resets a key: the node forgets it, and then the store does.
    pub(super) fn reset(&mut self, node: usize, key: usize) {
        self.counts(Operation::Reset);
        let Node {
            id,
            views,
            pushing,
            pushed,
            generations,
            life,
            ..
        } = &mut self.nodes[node];
        let (id, life) = (*id, *life);
        pushing[key] = None;
        generations[key] += 1;
        let allowance = &mut self.keys[key].allowance;
        let mut fresh = 0;
        let pushed = std::mem::take(&mut pushed[key]);
        if let Some(view) = views.remove(key as u64) {
            self.lost += view.unsynced();
            let last = self.sequence_numbers.get(&(id, key)).copied().unwrap_or(0);
            let pushed = pushed.into_iter().inspect(|(number, units)| {
                if *number > last {
                    allowance.drop_told((id, *number), *units);
                }
            });
            let in_flight: u64 = pushed.map(|(_, units)| units).sum();
            fresh = view.unsynced().saturating_sub(in_flight);
            if self.network.broken == Broken::ResetForgetsCalls {
                for _ in 0..view.in_store {
                    let _ = views.end_in_store(key as u64);
                }
            }
        }
        allowance.add(fresh);
        let (there, back) = (
            self.random.up_to(self.network.delay),
            self.random.up_to(self.network.delay),
        );
        let is_lost = self.is_by_chance(self.network.loss);
        if !is_lost {
            self.after(there, Event::Reset(key));
        }
        let wait = match is_lost {
            true => self.network.timeout,
            false => there + back,
        };
        self.after(wait, Event::WasReset(node, key, life));
        self.wake(node, key);
    }

    /// Resets a key in the store, with the numbers of what was pushed to it.
    pub(super) fn reset_in_store(&mut self, key: usize) {
        if self.now < self.down_until {
            return;
        }
        let (now, rule, spared) = (
            self.store_now(),
            &self.rules[0],
            self.spared(Operation::Reset),
        );
        let limit = i128::from(rule.look(None, now).limit().unwrap_or(0));
        let state = self.keys[key].state.take();
        // The most of several rules, and what is owed above the limit.
        let used = rule.used_of_share(state.as_ref(), now, 1);
        let owed = (limit - remaining(rule, state.as_ref(), now)) as u64;
        let used = used.max(owed);
        self.keys[key].allowance.add(used.saturating_sub(spared));
        self.sequence_numbers.retain(|(_, of), _| *of != key);
    }

    /// Notes that a reset has ended.
    pub(super) fn was_reset(&mut self, node: usize, key: usize, life: u64) {
        let Node {
            views,
            life: current,
            ..
        } = &mut self.nodes[node];
        if *current == life
            && let Some(view) = views.get(key as u64)
        {
            view.outdate();
        }
    }

    /// Sets the clock of a node.
    pub(super) fn step_node(&mut self, node: usize, time: u64, is_forward: bool) {
        self.counts(Operation::NodeClock);
        let offset = &mut self.nodes[node].offset;
        *offset = match is_forward {
            true => *offset + time,
            false => offset.saturating_sub(time),
        };
        self.mislead(node, is_forward);
    }

    /// Sets the clock of the store.
    pub(super) fn step_store(&mut self, time: u64, is_forward: bool) {
        self.counts(Operation::StoreClock);
        if !is_forward {
            self.store_offset -= time;
            return;
        }
        self.store_offset += time;
        let unit = self.network.longest_step / 2 / self.limit();
        let spared = self.spared(Operation::StoreClock) * unit;
        self.stepped += time.saturating_sub(spared);
        for node in 0..self.nodes.len() {
            self.mislead(node, false);
        }
    }

    /// Notes that a node may not have the right time: a later one, or an earlier one.
    fn mislead(&mut self, node: usize, is_late: bool) {
        let now = self.now;
        // A bucket by an earlier time is refilled later.
        if is_late || !self.network.steps_back {
            let spared = self.spared(Operation::NodeClock);
            let most = self.nodes[node].setting.most.saturating_sub(spared);
            for key in &mut self.keys {
                key.allowance.add(most);
            }
        }
        let Node {
            stepped_at,
            is_misled,
            ..
        } = &mut self.nodes[node];
        *stepped_at = now;
        is_misled.fill(true);
    }

    /// Returns the instant of an admission, as the meter counts time: with all steps forward of the
    /// clock of the store.
    pub(super) fn metered_at(&self) -> u64 {
        self.now + self.stepped
    }

    fn limit(&self) -> u64 {
        let look = self.rules[0].look(None, self.store_now());
        look.limit().unwrap_or(1).max(1)
    }
}
