//! A fleet in one thread: nodes that decide alone and push to a store later, a network that delays,
//! loses and repeats, and the store. Nothing sleeps.

mod allowance;
mod messages;
mod operations;
mod schedule;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

pub(super) use self::allowance::{Allowance, Operation};
use self::operations::Open;
use super::{
    meter::Admission,
    network::{Broken, Network},
};
use crate::{
    algorithm::Syncable,
    decision::{Charge, Decision},
    fleet::sync::{Bound, KeyView, Unsent, ViewEntry, Views},
    random::Random,
    time::Timestamp,
};

pub(super) struct Fleet<'r, R: Syncable> {
    /// The first one is the widest.
    rules: &'r [R],
    pub(super) network: Network,
    random: Random,
    pub(super) keys: Vec<Key<R>>,
    /// The last number of each node and key, as the store knows it: a reset forgets those of a key.
    sequence_numbers: HashMap<(u64, usize), u64>,
    /// The last number of each node and key.
    seen: HashMap<(u64, usize), u64>,
    /// Units that the store took in or admitted, each once.
    pub(super) taken_in: u64,
    /// Units that were charged, without those that nodes took back before they pushed them.
    pub(super) charged: u64,
    /// Units that nodes had not pushed when they died, or when the key was reset.
    pub(super) lost: u64,
    /// The units by which the nodes that died might be ahead.
    lost_unsynced: u64,
    /// The operations of all kinds.
    pub(super) operations: [u64; Operation::ALL.len()],
    /// The time by which the clock of the store stepped forward, as the meter counts it.
    stepped: u64,
    pub(super) deaths: u64,
    /// Calls that nodes decided by themselves.
    pub(super) decided_here: u64,
    /// The instant of the latest state that a node has taken in, by the clock of the store.
    known_at: Timestamp,
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
    pub(super) allowance: Allowance,
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
    views: Views<KeyView<R>>,
    offset: u64,
    waiting: Vec<Call>,
    /// For each key, the message under way that pushes something.
    pushing: Vec<Option<usize>>,
    /// For each key, the deltas that were pushed and not answered, with their numbers and units.
    pushed: Vec<Vec<(u64, u64)>>,
    /// For each key, the number of resets.
    generations: Vec<u64>,
    /// When a clock has stepped by which it goes, by the true time.
    stepped_at: u64,
    /// For each key, `true` since a clock has stepped until an answer was asked for and came.
    is_misled: Vec<bool>,
    /// For each key, the state that was returned last.
    pulled: Vec<Option<R::State>>,
    /// Charges that may be corrected.
    open: Vec<Open>,
    setting: Setting,
    /// The greatest number of units that it may be ahead under any of its rules; 0 while the number
    /// of nodes is unknown.
    most: u64,
    is_closed: bool,
    life: u64,
    /// Units that it admitted by itself.
    pub(super) admitted: u64,
}

/// The settings of a node.
#[derive(Clone, Copy)]
struct Setting {
    most: u64,
    period: u64,
    nodes: u64,
}

impl<R: Syncable> ViewEntry for KeyView<R> {
    type Rule = R;

    fn view(&mut self) -> &mut KeyView<R> {
        self
    }
}

#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) key: usize,
    pub(super) cost: u64,
    /// The index of its rule.
    pub(super) rule: usize,
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
    generation: u64,
    at: Timestamp,
    /// That instant by the true time.
    true_at: u64,
    purpose: Purpose<R>,
    is_over: bool,
    /// `true` if the node forgot at once that the store decides it.
    is_untraced: bool,
    answer: Option<(Timestamp, Option<R::State>)>,
    decided: Option<Decision>,
    /// The call that the store admitted.
    admission: Option<usize>,
}

enum Purpose<R> {
    /// With the number under which the store knows the node.
    Tell(u64, Vec<(Unsent<R>, Duration)>),
    /// With the rule and the cost.
    Call(usize, u64),
    /// A call of a node without the wrapper.
    Plain(u64),
}

enum Event {
    Call(usize, Call),
    Due(usize, usize, u64),
    Arrive(usize),
    Answer(usize),
    Timeout(usize),
    /// The store corrects a charge of a key.
    Correct(usize, usize, Charge, u64),
    /// The store resets a key.
    Reset(usize),
    /// A node hears that a key was reset.
    WasReset(usize, usize, u64),
}

impl<'r, R: Syncable> Fleet<'r, R> {
    pub(super) fn new(rules: &'r [R], network: Network, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let now = 1 + random.up_to(10_000_000_000);
        let mut fleet = Self {
            rules,
            keys: Vec::new(),
            sequence_numbers: HashMap::new(),
            seen: HashMap::new(),
            taken_in: 0,
            charged: 0,
            lost: 0,
            lost_unsynced: 0,
            operations: [0; Operation::ALL.len()],
            stepped: 0,
            deaths: 0,
            decided_here: 0,
            known_at: Timestamp::default(),
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
                allowance: Allowance::default(),
            });
        }
        for id in 0..fleet.network.nodes {
            let offset = fleet.random.up_to(1_000_000_000_000);
            let setting = fleet.random_setting();
            let node = fleet.node((id, setting), offset, 0);
            fleet.nodes.push(node);
        }
        fleet
    }

    /// A node that knows nothing.
    fn node(&self, (id, setting): (u64, Setting), offset: u64, life: u64) -> Node<R> {
        Node {
            id,
            views: Views::new(self.network.room, Duration::MAX),
            offset,
            waiting: Vec::new(),
            pushing: vec![None; self.keys.len()],
            pushed: vec![Vec::new(); self.keys.len()],
            generations: vec![0; self.keys.len()],
            stepped_at: 0,
            is_misled: vec![false; self.keys.len()],
            pulled: self.keys.iter().map(|_| None).collect(),
            open: Vec::new(),
            most: match self.network.count {
                0 => setting.most,
                _ => 0,
            },
            setting,
            is_closed: false,
            life,
            admitted: 0,
        }
    }

    /// Returns what a node may do alone under a rule. It may be less far ahead under a smaller one.
    fn bound(&self, node: usize, rule: usize) -> Bound {
        let Node {
            most,
            is_closed,
            setting,
            ..
        } = self.nodes[node];
        let nodes = match self.network.broken {
            Broken::WholePart => 1,
            _ => setting.nodes,
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
            period: Duration::from_nanos(setting.period),
            nodes: is_counted.then_some(nodes),
            is_closed: is_closed && self.network.broken != Broken::AdmitsAfterFlush,
        }
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
            Event::Correct(key, rule, charge, actual) => self.correct(key, rule, &charge, actual),
            Event::Reset(key) => self.reset_in_store(key),
            Event::WasReset(node, key, life) => self.was_reset(node, key, life),
        }
    }

    /// Returns how far all nodes together may exceed the limit, beside what operations allow: each
    /// as far as it may be ahead, but for the one that admits last.
    pub(super) fn ahead(&self) -> u64 {
        let each = || self.nodes.iter().map(|node| node.setting.most);
        let least = match self.count(Operation::Plain) {
            0 => each().min().unwrap_or(0),
            _ => 0,
        };
        let spared = self.spared(Operation::Plain) + self.spared(Operation::Setting);
        each().sum::<u64>() - least + self.lost_unsynced - spared
    }

    /// Returns how often something happened.
    pub(super) fn count(&self, operation: Operation) -> u64 {
        self.operations[operation as usize]
    }

    fn local(&self, node: usize) -> Timestamp {
        Timestamp::from_nanos(self.nodes[node].offset + self.now)
    }

    fn store_now(&self) -> Timestamp {
        Timestamp::from_nanos(self.store_offset + self.now)
    }

    /// Ends a node, and starts it anew without what it knew.
    pub(super) fn kill(&mut self, node: usize) {
        self.lost += self.unsynced(node);
        let Node {
            offset,
            life,
            setting,
            ..
        } = self.nodes[node];
        self.lost_unsynced += setting.most;
        let id = self.network.nodes + self.deaths;
        self.nodes[node] = self.node((id, setting), offset, life + 1);
        self.deaths += 1;
    }

    /// Returns the units that a node has to push. Some of them may be under way, or in the store.
    pub(super) fn unsynced(&self, node: usize) -> u64 {
        let views = self.nodes[node].views.known.iter();
        views.map(|(_, view)| view.unsynced()).sum()
    }

    /// Returns the units of calls that the store decided, and that no node has seen in a state.
    pub(super) fn unseen(&self) -> u64 {
        let unseen = |sent: &Sent<R>| match (&sent.purpose, &sent.answer) {
            (Purpose::Call(_, cost), Some((at, _))) if *at > self.known_at => {
                sent.admission.map_or(0, |_| *cost)
            }
            _ => 0,
        };
        self.sent.iter().map(unseen).sum()
    }

    /// Returns the share of the traffic of the first key that a node publishes.
    pub(super) fn share_permille(&mut self, node: usize) -> Option<u64> {
        self.nodes[node].views.get(0)?.share_permille()
    }

    /// Has a node admit nothing more, and push all it has to, for so long. Returns what it may not
    /// have pushed.
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
            if let Some(view) = self.nodes[node].views.get(key as u64) {
                view.clear_due();
                view.make_due(now);
                let due = view.due();
                self.note_due(node, key, Timestamp::MAX, due);
            }
        }
    }

    /// Asks the store for its state once more, and returns if all nodes see it.
    pub(super) fn all_agree(&mut self) -> bool {
        for node in 0..self.nodes.len() {
            self.make_due(node);
        }
        self.until(u64::MAX);
        let rule = &self.rules[0];
        let agrees = |node: usize| {
            let mut views = self.nodes[node].views.known.iter();
            views.all(|(key, view)| {
                let seen = view.look(rule, self.local(node));
                let state = self.keys[key as usize].state.as_ref();
                let exact = seen.map(|seen| rule.look(state, seen.at()));
                seen.is_some() && seen == exact && view.unsynced() == 0
            })
        };
        (0..self.nodes.len()).all(agrees)
    }
}
