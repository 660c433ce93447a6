//! A fleet in one thread: nodes that decide alone and tell a store later, a network that delays, loses and repeats, and the store. Nothing sleeps.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use super::{
    meter::Admission,
    network::{Broken, Network},
};
use crate::{
    algorithm::Syncable,
    decision::{Charge, Cost, Decision},
    random::Random,
    synced::{Account, Bound, Tried, Unsent},
    time::Timestamp,
};

pub(super) struct Fleet<'r, R: Syncable> {
    rule: &'r R,
    pub(super) network: Network,
    random: Random,
    pub(super) state: Option<R::State>,
    /// The last number of each node.
    marks: HashMap<u64, u64>,
    /// Units that the store took in or admitted.
    pub(super) taken_in: u64,
    /// Units that nodes had not told when they died.
    pub(super) lost: u64,
    pub(super) deaths: u64,
    store_offset: u64,
    nodes: Vec<Node<R>>,
    sent: Vec<Sent<R>>,
    events: BTreeMap<(u64, u64), Event>,
    number: u64,
    batch: u64,
    pub(super) now: u64,
    pub(super) admissions: Vec<Admission>,
    pub(super) refusals: Vec<Refusal>,
    /// No message arrives before this instant.
    pub(super) down_until: u64,
}

/// A refusal by a node, and what the exact rule had left at that instant or shortly before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub(super) at: u64,
    pub(super) cost: u64,
    /// The calls that were admitted before.
    pub(super) after: usize,
}

struct Node<R: Syncable> {
    id: u64,
    account: Account<R>,
    offset: u64,
    waiting: Vec<(u64, usize)>,
    /// The message under way that tells the store something.
    telling: Option<usize>,
    life: u64,
}

struct Sent<R: Syncable> {
    node: usize,
    life: u64,
    at: Timestamp,
    purpose: Purpose<R>,
    is_over: bool,
    answer: Option<(Timestamp, Option<R::State>)>,
    decided: Option<Decision>,
}

enum Purpose<R> {
    /// With the number under which the store knows the node.
    Tell(u64, Vec<(Unsent<R>, Duration)>),
    Call(u64),
}

enum Event {
    Call(usize, u64),
    Due(usize, u64),
    Arrive(usize),
    Answer(usize),
    Timeout(usize),
}

impl<'r, R: Syncable> Fleet<'r, R> {
    pub(super) fn new(rule: &'r R, network: Network, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let now = 1 + random.up_to(10_000_000_000);
        let mut fleet = Self {
            rule,
            state: None,
            marks: HashMap::new(),
            taken_in: 0,
            lost: 0,
            deaths: 0,
            // Windows of the calendar are those of the store.
            store_offset: 1_699_999_980_000_000_000,
            nodes: Vec::new(),
            sent: Vec::new(),
            events: BTreeMap::new(),
            number: 0,
            batch: 0,
            now,
            admissions: Vec::new(),
            refusals: Vec::new(),
            down_until: 0,
            network,
            random,
        };
        for id in 0..fleet.network.nodes {
            let offset = fleet.random.up_to(1_000_000_000_000);
            let account = Account::new(rule.clone(), Timestamp::from_nanos(offset + now));
            fleet.nodes.push(Node {
                id,
                account,
                offset,
                waiting: Vec::new(),
                telling: None,
                life: 0,
            });
        }
        fleet
    }

    fn bound(&self) -> Bound {
        let nodes = match self.network.broken {
            Broken::WholePart => 1,
            _ => self.network.nodes,
        };
        let most = match self.network.broken {
            Broken::NotHard => u64::MAX,
            _ => self.network.most,
        };
        Bound {
            number: 0,
            most,
            period: Duration::from_nanos(self.network.period),
            nodes: Some(nodes),
        }
    }

    /// Plays random calls, and then all that is under way.
    pub(super) fn play(&mut self) {
        let (mut burst, mut pace, mut only) = (0, 0, None);
        for _ in 0..self.network.calls {
            let mut gap = self.random.up_to(pace);
            if burst == 0 {
                gap = self.random.up_to(self.network.gap) << self.random.up_to(4);
                burst = 1 + self.random.up_to(30);
                pace = self.random.up_to(self.network.gap) >> self.random.up_to(6);
                only = (self.random.up_to(2) == 0).then(|| self.random_node());
            }
            burst -= 1;
            self.until(self.now + gap);
            if self.is_by_chance(self.network.death) {
                let node = self.random_node();
                self.kill(node);
            }
            let node = only.unwrap_or_else(|| self.random_node());
            let cost = 1 + self.random.up_to(self.network.max_cost - 1);
            self.offer(node, self.now, cost);
        }
        self.until(self.now + 1);
        self.end();
    }

    /// Lets everything come to its end: nobody calls, nothing is lost, and what nodes have to tell is told.
    pub(super) fn end(&mut self) {
        (self.network.loss, self.network.repeat, self.down_until) = (0, 0, 0);
        self.network.timeout = 4 * self.network.delay + 1;
        self.until(u64::MAX);
    }

    fn random_node(&mut self) -> usize {
        self.random.up_to(self.nodes.len() as u64 - 1) as usize
    }

    fn is_by_chance(&mut self, chance: u64) -> bool {
        chance > 0 && self.random.up_to(999) < chance
    }

    pub(super) fn offer(&mut self, node: usize, at: u64, cost: u64) {
        self.after(at - self.now, Event::Call(node, cost));
    }

    fn after(&mut self, wait: u64, event: Event) {
        self.number += 1;
        self.events.insert((self.now + wait, self.number), event);
    }

    /// Lets time pass. Calls that are due at the end are made.
    pub(super) fn until(&mut self, end: u64) {
        let mut most = 1_000_000;
        while let Some(entry) = self
            .events
            .first_entry()
            .filter(|entry| entry.key().0 <= end)
        {
            let ((at, _), event) = entry.remove_entry();
            self.now = self.now.max(at);
            self.happen(event);
            most -= 1;
            assert!(most > 0, "a fleet that does not come to rest");
        }
        if end < u64::MAX {
            self.now = self.now.max(end);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Call(node, cost) => self.call(node, cost, 0),
            Event::Due(node, life) => self.tell(node, life),
            Event::Arrive(message) => self.arrive(message),
            Event::Answer(message) => self.answer(message),
            Event::Timeout(message) => self.timeout(message),
        }
    }

    fn local(&self, node: usize) -> Timestamp {
        Timestamp::from_nanos(self.nodes[node].offset + self.now)
    }

    fn store_now(&self) -> Timestamp {
        Timestamp::from_nanos(self.store_offset + self.now)
    }

    fn call(&mut self, node: usize, cost: u64, waits: usize) {
        let (now, bound) = (self.local(node), self.bound());
        if let Broken::RefusesAhead = self.network.broken
            && self.nodes[node].account.unsynced() > 0
        {
            self.refused(cost);
            return;
        }
        let account = &mut self.nodes[node].account;
        if self.network.broken == Broken::AdmitsBesideStore {
            while account.is_in_store() {
                account.end_in_store();
            }
        }
        let call = (Cost::new(cost).unwrap(), waits >= 4);
        let before = account.due();
        let tried = account.acquire(self.rule, now, call, &bound);
        let due = account.due();
        self.note_due(node, before, due);
        match tried {
            Tried::Decided(decision) if decision.is_admitted() => {
                let at = self.now;
                self.admissions.push(Admission { at, cost });
            }
            Tried::Decided(_) => self.refused(cost),
            Tried::Sync => self.nodes[node].waiting.push((cost, waits + 1)),
            Tried::Store => self.send(node, Purpose::Call(cost)),
            Tried::Unreachable => {}
        }
    }

    fn refused(&mut self, cost: u64) {
        self.refusals.push(Refusal {
            at: self.now,
            cost,
            after: self.admissions.len(),
        });
    }

    fn note_due(&mut self, node: usize, before: Timestamp, due: Timestamp) {
        if due < before {
            let wait = due.saturating_since(self.local(node)).as_nanos() as u64;
            self.after(wait, Event::Due(node, self.nodes[node].life));
        }
    }

    fn tell(&mut self, node: usize, life: u64) {
        let now = self.local(node);
        let Node {
            account,
            id,
            telling,
            life: current,
            ..
        } = &mut self.nodes[node];
        if *current != life || telling.is_some() || account.due() > now {
            return;
        }
        if self.network.broken == Broken::DropsUnsynced && self.random.up_to(9) == 0 {
            *account = Account::new(self.rule.clone(), now);
            self.wake(node);
            return;
        }
        let batch = &mut self.batch;
        let unsent = account.send(|| {
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
        *telling = Some(self.sent.len());
        self.send(node, purpose);
    }

    fn send(&mut self, node: usize, purpose: Purpose<R>) {
        let message = self.sent.len();
        self.sent.push(Sent {
            node,
            life: self.nodes[node].life,
            at: self.local(node),
            purpose,
            is_over: false,
            answer: None,
            decided: None,
        });
        let timeout = self.network.timeout;
        self.after(timeout, Event::Timeout(message));
        let is_call = matches!(self.sent[message].purpose, Purpose::Call(_));
        let copies = 1 + u64::from(!is_call && self.is_by_chance(self.network.repeat));
        for _ in 0..copies {
            if !self.is_by_chance(self.network.loss) {
                let delay = self.random.up_to(self.network.delay);
                self.after(delay, Event::Arrive(message));
            }
        }
    }

    fn arrive(&mut self, message: usize) {
        if self.now < self.down_until {
            return;
        }
        let now = self.store_now();
        match &self.sent[message].purpose {
            Purpose::Tell(id, deltas) => {
                let last = self.marks.entry(*id).or_default();
                for (unsent, age) in deltas {
                    if unsent.number <= *last && self.network.broken != Broken::CountsTwice {
                        continue;
                    }
                    *last = unsent.number.max(*last);
                    let at = now.saturating_sub(*age);
                    let charge = Charge::new(at, 0);
                    unsent
                        .rule
                        .settle(&mut self.state, &charge, at, unsent.units);
                    self.taken_in += unsent.units;
                }
            }
            Purpose::Call(cost) => {
                let cost = Cost::new(*cost).unwrap();
                let decision = self.rule.step(&mut self.state, now, cost).decision();
                self.sent[message].decided = Some(decision);
                // Of a call that has failed nobody hears that it is admitted.
                let is_heard = !self.sent[message].is_over;
                if decision.is_admitted() && is_heard {
                    let (at, cost) = (self.now, cost.get());
                    self.admissions.push(Admission { at, cost });
                    self.taken_in += cost;
                }
            }
        }
        self.sent[message].answer = Some((now, self.state.clone()));
        if !self.is_by_chance(self.network.loss) {
            let delay = self.random.up_to(self.network.delay);
            self.after(delay, Event::Answer(message));
        }
    }

    fn is_over(&mut self, message: usize) -> bool {
        let Sent { node, life, .. } = self.sent[message];
        std::mem::replace(&mut self.sent[message].is_over, true) || self.nodes[node].life != life
    }

    fn answer(&mut self, message: usize) {
        if self.now < self.down_until || self.is_over(message) {
            return;
        }
        let Some((at, state)) = self.sent[message].answer.clone() else {
            return;
        };
        self.take_in(message, at, state);
    }

    fn take_in(&mut self, message: usize, mut at: Timestamp, state: Option<R::State>) {
        let Sent { node, at: sent, .. } = self.sent[message];
        let (now, bound) = (self.local(node), self.bound());
        if self.network.broken == Broken::ClockAhead {
            at = at.saturating_add(Duration::from_nanos(2 * self.network.delay + 300_000_000));
        }
        let is_call = matches!(self.sent[message].purpose, Purpose::Call(_));
        let account = &mut self.nodes[node].account;
        let before = account.due();
        if is_call {
            account.end_in_store();
        } else {
            let sent = if self.network.broken == Broken::ClockAhead {
                Timestamp::default()
            } else {
                sent
            };
            account.answered((sent, at, now), state, &bound);
            self.nodes[node].telling = None;
        }
        let due = self.nodes[node].account.due();
        self.note_due(node, before, due);
        self.wake(node);
    }

    fn timeout(&mut self, message: usize) {
        if self.is_over(message) {
            return;
        }
        let node = self.sent[message].node;
        if matches!(self.sent[message].purpose, Purpose::Call(_)) {
            // The call fails. The store may have admitted it.
            self.nodes[node].account.end_in_store();
            self.wake(node);
            return;
        }
        if self.network.broken == Broken::LossIsTaken {
            let at = self.store_now();
            let state = self.state.clone();
            self.take_in(message, at, state);
            return;
        }
        let (now, bound) = (self.local(node), self.bound());
        let cuts_off = self.network.cuts_off;
        let Node {
            account, telling, ..
        } = &mut self.nodes[node];
        *telling = None;
        account.clear_due();
        account.failed(now, cuts_off, &bound);
        let due = account.due();
        self.note_due(node, Timestamp::MAX, due);
        if self.network.cuts_off {
            self.wake(node);
        }
    }

    fn wake(&mut self, node: usize) {
        for (cost, waits) in std::mem::take(&mut self.nodes[node].waiting) {
            self.call(node, cost, waits);
        }
    }

    /// Ends a node, and starts it anew without what it knew.
    fn kill(&mut self, node: usize) {
        let ids = self.network.nodes + self.deaths;
        let now = self.local(node);
        let killed = &mut self.nodes[node];
        killed.life += 1;
        killed.id = ids;
        killed.telling = None;
        killed.waiting.clear();
        let account = Account::new(self.rule.clone(), now);
        let unsynced = std::mem::replace(&mut killed.account, account).unsynced();
        self.deaths += 1;
        // Some of it may be under way, or in the store.
        self.lost += unsynced;
    }

    /// Returns the admitted units.
    pub(super) fn admitted(&self) -> u64 {
        self.admissions.iter().map(|admission| admission.cost).sum()
    }

    /// Returns the admissions in the order of time.
    pub(super) fn sorted(&mut self) -> &[Admission] {
        self.admissions.sort_by_key(|admission| admission.at);
        &self.admissions
    }

    /// Asks the store for its state once more, and returns if all nodes see it.
    pub(super) fn all_agree(&mut self) -> bool {
        for node in 0..self.nodes.len() {
            let now = self.local(node);
            let account = &mut self.nodes[node].account;
            account.clear_due();
            account.make_due(now);
            let due = account.due();
            self.note_due(node, Timestamp::MAX, due);
        }
        self.until(u64::MAX);
        let nodes = 0..self.nodes.len();
        let mut looks = nodes.map(|node| {
            let account = &self.nodes[node].account;
            let seen = account.look(self.rule, self.local(node));
            let at = seen.map(|seen| seen.at());
            let exact = at.map(|at| self.rule.look(self.state.as_ref(), at));
            seen.is_some() && seen == exact && account.unsynced() == 0
        });
        looks.all(|agrees| agrees)
    }
}
