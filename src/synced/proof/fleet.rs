//! A fleet in one thread: nodes that decide alone and tell a store later, a network that delays, loses and repeats, and the store. Nothing sleeps.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasherDefault, Hasher},
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
    synced::{Account, Book, Bound, Entry, Found, Tried, Unsent},
    time::Timestamp,
};

pub(super) struct Fleet<'r, R: Syncable> {
    /// The first one is the widest.
    rules: &'r [R],
    pub(super) network: Network,
    random: Random,
    pub(super) keys: Vec<Key<R>>,
    /// The last number of each node and key.
    marks: HashMap<(u64, usize), u64>,
    /// Units that the store took in or admitted.
    pub(super) taken_in: u64,
    /// Units that nodes had not told when they died.
    pub(super) lost: u64,
    pub(super) deaths: u64,
    /// Calls that nodes decided by themselves.
    pub(super) decided_here: u64,
    store_offset: u64,
    pub(super) nodes: Vec<Node<R>>,
    sent: Vec<Sent<R>>,
    events: BTreeMap<(u64, u64), Event>,
    number: u64,
    batch: u64,
    pub(super) now: u64,
    /// No message arrives before this instant.
    pub(super) down_until: u64,
}

/// A key in the store, and what came of its calls.
pub(super) struct Key<R: Syncable> {
    state: Option<R::State>,
    pub(super) admissions: Vec<Admission>,
    pub(super) refusals: Vec<Refusal>,
}

/// A refusal by a node, and what the exact rule had left at that instant or shortly before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub(super) at: u64,
    pub(super) cost: u64,
    /// The calls that were admitted before.
    pub(super) after: usize,
}

pub(super) struct Node<R: Syncable> {
    id: u64,
    book: Book<R, Account<R>, BuildHasherDefault<OfNumber>>,
    offset: u64,
    waiting: Vec<Call>,
    /// For each key, the message under way that tells the store something.
    telling: Vec<Option<usize>>,
    /// For each key, the state that was returned last.
    pulled: Vec<Option<R::State>>,
    /// The greatest number of units that it may be ahead under any of its rules; 0 while the number of nodes is unknown.
    most: u64,
    is_closed: bool,
    life: u64,
    /// Units that it admitted by itself.
    pub(super) admitted: u64,
}

/// Takes the number of a key as its hash.
#[derive(Default)]
struct OfNumber(u64);

impl Hasher for OfNumber {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(Random::STEP);
    }
}

impl<R: Syncable> Entry<R> for Account<R> {
    fn account(&self) -> &Account<R> {
        self
    }

    fn account_mut(&mut self) -> &mut Account<R> {
        self
    }
}

#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) key: usize,
    pub(super) cost: u64,
    rule: usize,
    waits: usize,
}

impl Call {
    pub(super) fn new(key: usize, cost: u64) -> Self {
        Self {
            key,
            cost,
            rule: 0,
            waits: 0,
        }
    }
}

struct Sent<R: Syncable> {
    node: usize,
    key: usize,
    life: u64,
    at: Timestamp,
    purpose: Purpose<R>,
    is_over: bool,
    /// `true` if the node forgot at once that the store decides it.
    is_untraced: bool,
    answer: Option<(Timestamp, Option<R::State>)>,
    decided: Option<Decision>,
}

enum Purpose<R> {
    /// With the number under which the store knows the node.
    Tell(u64, Vec<(Unsent<R>, Duration)>),
    /// With the rule and the cost.
    Call(usize, u64),
}

enum Event {
    Call(usize, Call),
    Due(usize, usize, u64),
    Arrive(usize),
    Answer(usize),
    Timeout(usize),
}

impl<'r, R: Syncable> Fleet<'r, R> {
    pub(super) fn new(rules: &'r [R], network: Network, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let now = 1 + random.up_to(10_000_000_000);
        let mut fleet = Self {
            rules,
            keys: Vec::new(),
            marks: HashMap::new(),
            taken_in: 0,
            lost: 0,
            deaths: 0,
            decided_here: 0,
            // Windows of the calendar are those of the store.
            store_offset: 1_699_999_980_000_000_000,
            nodes: Vec::new(),
            sent: Vec::new(),
            events: BTreeMap::new(),
            number: 0,
            batch: 0,
            now,
            down_until: 0,
            network,
            random,
        };
        for _ in 0..fleet.network.keys {
            fleet.keys.push(Key {
                state: None,
                admissions: Vec::new(),
                refusals: Vec::new(),
            });
        }
        for id in 0..fleet.network.nodes {
            let offset = fleet.random.up_to(1_000_000_000_000);
            let node = fleet.node(id, offset, 0);
            fleet.nodes.push(node);
        }
        fleet
    }

    /// A node that knows nothing.
    fn node(&self, id: u64, offset: u64, life: u64) -> Node<R> {
        Node {
            id,
            book: Book::new(self.network.room),
            offset,
            waiting: Vec::new(),
            telling: vec![None; self.keys.len()],
            pulled: self.keys.iter().map(|_| None).collect(),
            most: match self.network.count {
                0 => self.network.most,
                _ => 0,
            },
            is_closed: false,
            life,
            admitted: 0,
        }
    }

    /// Returns what a node may do alone under a rule. It may be less far ahead under a smaller one.
    fn bound(&self, node: usize, rule: usize) -> Bound {
        let Node {
            most, is_closed, ..
        } = self.nodes[node];
        let nodes = match self.network.broken {
            Broken::WholePart => 1,
            _ => self.network.nodes,
        };
        let is_counted = most > 0 || self.network.count == 0;
        let most = match self.network.broken {
            Broken::NotHard => u64::MAX,
            Broken::AheadAtZero => 2,
            _ if is_closed => 0,
            _ => most >> rule,
        };
        Bound {
            number: most.wrapping_mul(2).wrapping_add(rule as u64),
            most,
            period: Duration::from_nanos(self.network.period),
            nodes: is_counted.then_some(nodes),
            is_closed: is_closed && self.network.broken != Broken::AdmitsAfterFlush,
        }
    }

    /// Plays random calls, and then all that is under way.
    pub(super) fn play(&mut self) {
        self.play_calls();
        self.end();
    }

    pub(super) fn play_calls(&mut self) {
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
            self.befall();
            let node = only.unwrap_or_else(|| self.random_node());
            let call = self.random_call();
            self.offer(node, self.now, call);
        }
        self.until(self.now + 1);
    }

    /// Lets happen to a node by chance what is no call.
    fn befall(&mut self) {
        if self.is_by_chance(self.network.death) {
            let node = self.random_node();
            self.kill(node);
        }
        if self.is_by_chance(self.network.forget) {
            let (node, key) = (self.random_node(), self.random_key());
            self.forget(node, key);
        }
        if self.is_by_chance(self.network.count) {
            let node = self.random_node();
            self.nodes[node].most = match self.random.up_to(3) {
                0 => 0,
                1 => self.random.up_to(self.network.most),
                _ => self.network.most,
            };
        }
    }

    /// Drops what a node knows of a key, if it has nothing to tell and nobody waits.
    fn forget(&mut self, node: usize, key: usize) {
        let Node { book, waiting, .. } = &mut self.nodes[node];
        let account = book.get(key as u64);
        let is_settled = account.is_some_and(|account| account.is_settled());
        if is_settled && waiting.iter().all(|call| call.key != key) {
            let _ = book.remove(key as u64);
        }
    }

    fn random_key(&mut self) -> usize {
        self.random.up_to(self.network.keys - 1) as usize
    }

    fn random_call(&mut self) -> Call {
        let cost = 1 + self.random.up_to(self.network.max_cost - 1);
        let mut call = Call::new(self.random_key(), cost);
        if self.is_by_chance(self.network.change) {
            call.rule = self.random.up_to(self.rules.len() as u64 - 1) as usize;
        }
        call
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

    pub(super) fn offer(&mut self, node: usize, at: u64, call: Call) {
        self.after(at - self.now, Event::Call(node, call));
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
            Event::Call(node, call) => self.call(node, call),
            Event::Due(node, key, life) => self.tell(node, key, life),
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

    fn call(&mut self, node: usize, call: Call) {
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

    fn refused(&mut self, key: usize, cost: u64) {
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

    fn note_due(&mut self, node: usize, key: usize, before: Timestamp, due: Timestamp) {
        if due < before {
            let wait = due.saturating_since(self.local(node)).as_nanos() as u64;
            self.after(wait, Event::Due(node, key, self.nodes[node].life));
        }
    }

    fn tell(&mut self, node: usize, key: usize, life: u64) {
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

    fn send(&mut self, node: usize, key: usize, purpose: Purpose<R>) -> usize {
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

    fn arrive(&mut self, message: usize) {
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
    fn end_call(&mut self, message: usize) {
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

    fn timeout(&mut self, message: usize) {
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

    fn wake(&mut self, node: usize, key: usize) {
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

    /// Ends a node, and starts it anew without what it knew.
    pub(super) fn kill(&mut self, node: usize) {
        self.lost += self.unsynced(node);
        let Node { offset, life, .. } = self.nodes[node];
        self.nodes[node] = self.node(self.network.nodes + self.deaths, offset, life + 1);
        self.deaths += 1;
    }

    /// Returns the units that a node has to tell. Some of them may be under way, or in the store.
    pub(super) fn unsynced(&self, node: usize) -> u64 {
        let accounts = self.nodes[node].book.all();
        accounts.map(|(_, account)| account.unsynced()).sum()
    }

    /// Returns the part of the traffic of the first key that a node publishes.
    pub(super) fn share_permille(&mut self, node: usize) -> Option<u64> {
        self.nodes[node].book.get(0)?.share_permille()
    }

    /// Has a node admit nothing more, and tell all it has to, for so long. Returns what it may not have told.
    pub(super) fn flush(&mut self, node: usize, within: u64) -> u64 {
        self.nodes[node].is_closed = true;
        for _ in 0..20 {
            if self.network.broken != Broken::FlushesNothing {
                self.make_due(node);
            }
            self.until(self.now + within / 20);
        }
        self.unsynced(node)
    }

    fn make_due(&mut self, node: usize) {
        let now = self.local(node);
        for key in 0..self.keys.len() {
            if let Some(account) = self.nodes[node].book.get(key as u64) {
                account.clear_due();
                account.make_due(now);
                let due = account.due();
                self.note_due(node, key, Timestamp::MAX, due);
            }
        }
    }

    /// Returns the admitted units.
    pub(super) fn admitted(&self) -> u64 {
        let all = self.keys.iter().flat_map(|key| &key.admissions);
        all.map(|admission| admission.cost).sum()
    }

    /// Asks the store for its state once more, and returns if all nodes see it.
    pub(super) fn all_agree(&mut self) -> bool {
        for node in 0..self.nodes.len() {
            self.make_due(node);
        }
        self.until(u64::MAX);
        let rule = &self.rules[0];
        let agrees = |node: usize| {
            let mut accounts = self.nodes[node].book.all();
            accounts.all(|(key, account)| {
                let seen = account.look(rule, self.local(node));
                let state = self.keys[*key as usize].state.as_ref();
                let exact = seen.map(|seen| rule.look(state, seen.at()));
                seen.is_some() && seen == exact && account.unsynced() == 0
            })
        };
        (0..self.nodes.len()).all(agrees)
    }
}
