//! A fleet in one thread: nodes with leases, a network that delays, loses and repeats, and a store.
//! Nothing sleeps.

mod messages;
mod schedule;

use std::{collections::BTreeMap, time::Duration};

pub(super) use self::schedule::{Broken, Weather};
use super::meter::Admission;
use crate::{
    algorithm::Leasable,
    decision::{Charge, Decision},
    fleet::{
        LeaseStats,
        lease::{LeaseState, Request, Terms},
    },
    random::Random,
    time::Timestamp,
};

pub(super) struct Fleet<'r, R: Leasable> {
    rule: &'r R,
    tightened: R,
    duration: Duration,
    terms: Terms,
    weather: Weather,
    random: Random,
    state: Option<R::State>,
    /// Adds to the true time.
    store_offset: u64,
    nodes: Vec<Node>,
    sent: Vec<Sent>,
    events: BTreeMap<(u64, u64), Event>,
    number: u64,
    pub(super) now: u64,
    pub(super) admissions: Vec<Admission>,
    pub(super) openings: Vec<(u64, u64)>,
    /// Units that were forced onto the store.
    pub(super) forced: u64,
    pub(super) asked: u64,
    capacity: u64,
    /// The units by which the limit may be exceeded: what was granted, a limit for each reset, and
    /// the price of nodes without leases.
    pub(super) more: u64,
}

pub(super) struct Node {
    pub(super) state: LeaseState,
    pub(super) counts: LeaseStats,
    offset: u64,
    drift: i64,
    frozen_until: u64,
    life: u64,
    waiting: Vec<(u64, u64)>,
    open: Vec<Open>,
    random: Random,
}

/// A charge that may be corrected.
struct Open {
    admission: usize,
    charge: Charge,
}

struct Sent {
    node: usize,
    life: u64,
    request: Request,
    purpose: Purpose,
    is_done: bool,
    answered: bool,
}

/// The reason for a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Call,
    Ahead,
    /// A call of a node that has no room for the key.
    OverCapacity,
    /// A call of a node without leases.
    Plain,
}

enum Event {
    Call(usize, u64),
    Arrive(usize),
    Answer(usize, Decision),
    Timeout(usize),
    Correct(Charge, u64),
    Grant(u64),
    Reset,
}

impl Node {
    /// Ends, and starts anew without what it knew.
    fn stop(&mut self) {
        self.life += 1;
        (self.state, self.counts) = <_>::default();
        self.waiting.clear();
        self.open.clear();
    }
}

impl<'r, R: Leasable> Fleet<'r, R> {
    pub(super) fn new(rule: &'r R, duration: Duration, weather: Weather, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let tightened = rule.tightened(duration, weather.max_cost).unwrap();
        let tightened = match weather.broken {
            Broken::NotStricter => rule.clone(),
            _ => tightened,
        };
        let terms = Terms::new(rule, &tightened, duration);
        let drift = weather.drift;
        let node = |random: &mut Random| Node {
            state: LeaseState::default(),
            counts: LeaseStats::default(),
            offset: random.up_to(1_000_000_000_000),
            drift: random.up_to(2 * drift) as i64 - drift as i64,
            frozen_until: 0,
            life: 0,
            waiting: Vec::new(),
            open: Vec::new(),
            random: Random::new(random.next()),
        };
        let nodes = (0..weather.nodes).map(|_| node(&mut random)).collect();
        let capacity = rule
            .look(None, Timestamp::from_nanos(1))
            .limit()
            .unwrap_or(0);
        // A node without leases forgets the calls of a log sooner than leases end. In a bucket,
        // what it finds and what others hold is the burst at most: a grant counts from what the
        // tightened rule leaves of it.
        let price = match period_of(rule) == period_of(&tightened) {
            true => 0,
            false => capacity,
        };
        Self {
            rule,
            tightened,
            duration,
            terms,
            state: None,
            // Windows of the calendar are those of the store.
            store_offset: 1_699_999_980_000_000_000,
            nodes,
            sent: Vec::new(),
            events: BTreeMap::new(),
            number: 0,
            now: 1 + random.up_to(10_000_000_000),
            admissions: Vec::new(),
            openings: Vec::new(),
            forced: 0,
            asked: 0,
            capacity,
            more: if weather.plain > 0 { price } else { 0 },
            weather,
            random,
        }
    }

    /// Lets a node call in a steady rhythm until an instant.
    pub(super) fn offer(&mut self, node: usize, at: u64, cost: u64) {
        self.until(at);
        self.now = at;
        self.call(node, cost, 0);
    }

    fn happens(&mut self, chance: u64) -> bool {
        chance > 0 && self.random.up_to(999) < chance
    }

    fn at(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.events.insert((at, self.number), event);
    }

    pub(super) fn until(&mut self, end: u64) {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > end {
                break;
            }
            let ((at, _), event) = entry.remove_entry();
            self.now = self.now.max(at);
            self.run(event);
            self.check();
        }
    }

    fn run(&mut self, event: Event) {
        let node = match &event {
            Event::Call(node, _) => Some(*node),
            Event::Answer(id, _) | Event::Timeout(id) => Some(self.sent[*id].node),
            Event::Arrive(_) | Event::Correct(..) | Event::Grant(_) | Event::Reset => None,
        };
        if let Some(node) = node {
            let until = self.nodes[node].frozen_until;
            if self.now < until {
                return self.at(until, event);
            }
        }
        match event {
            Event::Call(node, cost) => self.call(node, cost, 0),
            Event::Arrive(id) => self.arrive(id),
            Event::Answer(id, decision) => self.answer(id, decision),
            Event::Timeout(id) => self.timeout(id),
            Event::Correct(charge, actual) => {
                let now = self.store_now();
                self.tightened.settle(&mut self.state, &charge, now, actual);
            }
            Event::Grant(units) => {
                let now = self.store_now();
                let look = self.tightened.look(self.state.as_ref(), now);
                let slack = self.tightened.grant_slack().unwrap_or(0);
                let charge = Charge::new(
                    self.tightened.grant_at(&look).unwrap_or(look.at()),
                    units + slack,
                );
                self.tightened.settle(&mut self.state, &charge, now, slack);
            }
            Event::Reset => self.state = None,
        }
    }

    fn store_now(&self) -> Timestamp {
        Timestamp::from_nanos(self.store_offset + self.now)
    }

    fn node_now(&self, node: usize) -> Timestamp {
        let node = &self.nodes[node];
        let drifted = i128::from(self.now) * (1_000_000 + i128::from(node.drift)) / 1_000_000;
        Timestamp::from_nanos(node.offset + drifted as u64)
    }

    /// A2 and A3: each unit is accounted for, and no more of them can be spent than the rule holds.
    fn check(&self) {
        if self.weather.broken != Broken::Nothing {
            return;
        }
        let mut all_left = 0;
        for (index, node) in self.nodes.iter().enumerate() {
            let LeaseStats {
                granted,
                spent,
                expired,
                returned,
                lost,
                ..
            } = node.counts;
            let left = node.state.left();
            assert_eq!(
                granted,
                spent.wrapping_add(left + expired + returned + lost),
                "{:?} and {left} left",
                node.counts
            );
            assert!(spent <= granted, "{:?}", node.counts);
            if self.now >= node.frozen_until {
                let left = node.state.left_at(self.node_now(index));
                assert!(
                    self.weather.refunds
                        || self.weather.settle > 0
                        || self.weather.late_answers
                        || self.more > 0
                        || left <= self.terms.most_held(),
                    "{left} on a node, of {}",
                    self.capacity
                );
                all_left += left;
            }
        }
        let now = self.store_now();
        let remaining = self
            .tightened
            .look(self.state.as_ref(), now)
            .remaining()
            .unwrap_or(0);
        assert!(
            remaining + all_left <= self.capacity + self.more,
            "{remaining} in the store and {all_left} on nodes, of {} at {}",
            self.capacity,
            self.now
        );
    }

    pub(super) fn sorted(&mut self) -> &[Admission] {
        self.admissions.sort_by_key(|admission| admission.at);
        &self.admissions
    }
}

fn period_of<R: Leasable>(rule: &R) -> Option<Duration> {
    let look = rule.look(None, Timestamp::default());
    look.quota().map(|quota| quota.period())
}
