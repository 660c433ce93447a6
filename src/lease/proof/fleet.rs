//! A fleet in one thread: nodes with leases, a network that delays, loses and repeats, and a store. Nothing sleeps.

use std::{collections::BTreeMap, time::Duration};

use super::meter::Admission;
use crate::{
    algorithm::{Leasable, Step as Decided},
    decision::{Charge, Cost, Decision, Position},
    lease::{Answer, Counts, Holder, Plan, Request, Step, Surroundings, Terms},
    random::Random,
    store::Spend,
    time::Timestamp,
};

/// A law that is broken on purpose, to see that the invariants notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    Nothing,
    /// L1: lives count from the instant at which the answer came.
    LifeFromAnswer,
    /// L1: lives are not shortened for clocks that are slow.
    Drift,
    /// L2: a request that timed out is taken as granted.
    TimeoutGrants,
    /// L3: what is left, or was paid by the store, is given back there although others have leased since.
    ReturnAnyway,
    /// L4: a refund lives for a whole hold again.
    RefundLivesAnew,
    /// L5: a debt is dropped.
    DebtForgotten,
    /// The store runs the rule as written.
    NotStricter,
}

/// The events of a schedule, most of them as chances in a thousand.
#[derive(Clone, Debug)]
pub(super) struct Weather {
    pub(super) nodes: u64,
    pub(super) calls: u64,
    pub(super) max_cost: u64,
    /// The longest gap between two calls; most are much shorter.
    pub(super) gap: u64,
    pub(super) delay: u64,
    pub(super) timeout: u64,
    pub(super) loss: u64,
    pub(super) repeat: u64,
    pub(super) death: u64,
    pub(super) freeze: u64,
    pub(super) settle: u64,
    pub(super) release: u64,
    pub(super) grant: u64,
    pub(super) reset: u64,
    /// Calls of nodes without leases, which decide by the rule as it is written.
    pub(super) plain: u64,
    /// Clocks run fast or slow by up to so many millionths.
    pub(super) drift: u64,
    pub(super) late_answers: bool,
    pub(super) is_trap: bool,
    pub(super) refunds: bool,
    pub(super) broken: Broken,
}

impl Weather {
    pub(super) fn random(random: &mut Random, hold: u64) -> Self {
        let mut rarely = |chance| {
            if random.up_to(2) == 0 {
                random.up_to(chance)
            } else {
                0
            }
        };
        let chances = [300, 200, 60, 60, 600, 20].map(&mut rarely);
        let [loss, repeat, death, freeze, settle, release] = chances;
        // Each of them allows more, so most schedules have none.
        let mut seldom = |chance| match random.up_to(7) {
            0 => random.up_to(chance),
            _ => 0,
        };
        let [grant, reset, plain] = [60, 20, 600].map(&mut seldom);
        Self {
            nodes: 1 + random.up_to(4),
            calls: 20 + random.up_to(80),
            max_cost: 1 + random.up_to(2),
            gap: 1 + random.up_to(2 * hold),
            delay: random.up_to(hold) >> random.up_to(5),
            timeout: hold / 4 + random.up_to(hold),
            loss,
            repeat,
            death,
            freeze,
            settle,
            release,
            grant,
            reset,
            plain,
            drift: random.up_to(1000),
            refunds: random.up_to(1) == 0,
            is_trap: random.up_to(3) == 0,
            late_answers: random.up_to(1) == 0,
            broken: Broken::Nothing,
        }
    }
}

pub(super) struct Fleet<'r, R: Leasable> {
    rule: &'r R,
    held: R,
    hold: Duration,
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
    pub(super) decisions: u64,
    /// Units that were forced onto the store.
    pub(super) forced: u64,
    pub(super) asked: u64,
    capacity: u64,
    /// The units by which the limit may be exceeded: what was granted, a limit for each reset, and the price of nodes without leases.
    pub(super) more: u64,
}

pub(super) struct Node {
    pub(super) holder: Holder,
    pub(super) counts: Counts,
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
    Crowded,
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

impl Weather {
    /// Nothing goes wrong, and an answer takes up to `round_trip`.
    pub(super) fn calm(nodes: u64, round_trip: u64) -> Self {
        Self {
            nodes,
            calls: 0,
            max_cost: 1,
            gap: 0,
            delay: round_trip / 2,
            timeout: 10 * round_trip,
            loss: 0,
            repeat: 0,
            death: 0,
            freeze: 0,
            settle: 0,
            release: 0,
            grant: 0,
            reset: 0,
            plain: 0,
            drift: 0,
            late_answers: false,
            is_trap: false,
            refunds: false,
            broken: Broken::Nothing,
        }
    }
}

impl Node {
    /// Ends, and starts anew without what it knew.
    fn stop(&mut self) {
        self.life += 1;
        (self.holder, self.counts) = <_>::default();
        self.waiting.clear();
        self.open.clear();
    }
}

impl<'r, R: Leasable> Fleet<'r, R> {
    pub(super) fn new(rule: &'r R, hold: Duration, weather: Weather, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let held = rule.held(hold, weather.max_cost).unwrap();
        let held = match weather.broken {
            Broken::NotStricter => rule.clone(),
            _ => held,
        };
        let terms = Terms::new(rule, &held, hold);
        let drift = weather.drift;
        let node = |random: &mut Random| Node {
            holder: Holder::default(),
            counts: Counts::default(),
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
        // A node without leases forgets the calls of a log sooner than leases end. In a bucket, what it finds and what others hold is the
        // burst at most: a grant counts from what the held rule leaves of it.
        let price = match period_of(rule) == period_of(&held) {
            true => 0,
            false => capacity,
        };
        Self {
            rule,
            held,
            hold,
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
            decisions: 0,
            forced: 0,
            asked: 0,
            capacity,
            more: if weather.plain > 0 { price } else { 0 },
            weather,
            random,
        }
    }

    /// Plays random calls, and then what is in flight.
    pub(super) fn play(&mut self) {
        let hold = self.hold.as_nanos() as u64;
        let (mut burst, mut pace, mut only, mut crowded) = (0, 0, None, false);
        let mut refunded = 0;
        let (mut phase, nodes) = (3, self.weather.nodes);
        let idle = 11 * self.rule.usual_hold().as_nanos() as u64;
        let calls = match self.weather.is_trap {
            true => 30 * nodes + self.capacity,
            false => self.weather.calls,
        };
        for _ in 0..calls {
            let mut gap = self.random.up_to(pace);
            if burst == 0 {
                // Units that wait until their end, and then many calls at once, are what comes closest to the limit.
                gap = match self.random.up_to(3) {
                    0 => self.random.up_to(self.weather.gap),
                    1 => hold * 9 / 10 + self.random.up_to(hold / 5),
                    2 => self.random.up_to(hold),
                    _ => self.random.up_to(hold / 10),
                };
                burst = match self.random.up_to(2) {
                    0 => 1 + self.random.up_to(8),
                    _ => 1 + self.random.up_to(2 * self.capacity),
                };
                crowded = self.random.up_to(2) == 0;
                pace = [0, hold / 200, hold / 20][self.random.up_to(2) as usize];
                only = (self.random.up_to(2) == 0)
                    .then(|| self.random.up_to(self.weather.nodes - 1) as usize);
                if self.weather.is_trap {
                    // All nodes get used to many calls, lease much, and wait until their units are about to end. Then they spend
                    // them, and empty the store.
                    phase = (phase + 1) % 4;
                    only = None;
                    crowded = phase == 3;
                    (gap, burst, pace) = match phase {
                        0 => (idle, nodes * (6 + self.random.up_to(8)), 0),
                        1 => (
                            hold / 2 + self.random.up_to(hold / 2),
                            nodes * (1 + self.random.up_to(3)),
                            0,
                        ),
                        2 => (hold / 2 + self.random.up_to(hold), 12 * nodes, 0),
                        _ => (0, self.capacity + 10, 0),
                    };
                }
            }
            burst -= 1;
            let at = self.now + gap;
            self.until(at);
            self.now = at;
            // Calls that cost nothing in the end were offered all the same, so nodes lease much of a full bucket.
            if self.weather.is_trap && self.weather.refunds && matches!(phase, 1 | 2) {
                for node in 0..self.nodes.len() {
                    while self.now >= self.nodes[node].frozen_until
                        && !self.nodes[node].open.is_empty()
                        && phase != refunded
                    {
                        self.settle_last(node, 0);
                    }
                }
                refunded = phase;
            }
            let any = self.random.up_to(self.weather.nodes - 1) as usize;
            let node = only.unwrap_or(any);
            let cost = 1 + self.random.up_to(self.weather.max_cost - 1);
            self.mischief(node);
            if self.happens(self.weather.plain) {
                let request = Request::beside(Cost::new(cost).unwrap(), self.node_now(node));
                self.send(node, request, Purpose::Plain);
            } else if crowded && (self.weather.is_trap || self.random.up_to(3) > 0) {
                let request = Request::beside(Cost::new(cost).unwrap(), self.node_now(node));
                self.send(node, request, Purpose::Crowded);
            } else {
                self.call(node, cost, 0);
            }
            self.check();
        }
        self.until(u64::MAX);
    }

    /// Lets a node call in a steady rhythm until an instant.
    pub(super) fn offer(&mut self, node: usize, at: u64, cost: u64) {
        self.until(at);
        self.now = at;
        self.call(node, cost, 0);
    }

    /// Kills or freezes the node, or settles one of its charges, by chance.
    fn mischief(&mut self, node: usize) {
        let now = self.now;
        if self.happens(self.weather.death) {
            self.nodes[node].stop();
        }
        if self.happens(self.weather.freeze) {
            self.nodes[node].frozen_until = now + self.random.up_to(2 * self.weather.gap);
        }
        if self.happens(self.weather.release) {
            self.release(node);
        }
        if self.happens(self.weather.settle) {
            self.settle(node);
        }
        let soon = self.now + self.random.up_to(self.weather.delay);
        if self.happens(self.weather.grant) {
            let units = 1 + self.random.up_to(self.capacity);
            self.more += units;
            self.nodes[node].holder.forget_answers();
            self.at(soon, Event::Grant(units));
        }
        if self.happens(self.weather.reset) {
            self.more += self.capacity;
            let node_now = self.node_now(node);
            let Node { holder, counts, .. } = &mut self.nodes[node];
            counts.lost += holder.clear(node_now, counts);
            holder.forget_answers();
            self.at(soon, Event::Reset);
        }
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
                self.held.settle(&mut self.state, &charge, now, actual);
            }
            Event::Grant(units) => {
                let now = self.store_now();
                let look = self.held.look(self.state.as_ref(), now);
                let slack = self.held.grant_slack().unwrap_or(0);
                let charge = Charge::new(self.held.grant_at(&look), units + slack);
                self.held.settle(&mut self.state, &charge, now, slack);
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

    /// Hands the answer of the store to the leases of a node.
    fn take_in(&mut self, index: usize, request: &Request, answer: &Answer) -> Decision {
        let (now, round_trip) = (self.node_now(index), self.weather.delay);
        let Node {
            holder,
            counts,
            random,
            ..
        } = &mut self.nodes[index];
        let mut surroundings = Surroundings {
            now,
            plan: Plan {
                terms: &self.terms,
                round_trip,
            },
            draw: &mut |most| random.up_to(most),
            counts,
        };
        holder.answered(request, answer, &mut surroundings)
    }

    fn call(&mut self, index: usize, cost: u64, tries: u64) {
        if self.now < self.nodes[index].frozen_until {
            let until = self.nodes[index].frozen_until;
            return self.at(until, Event::Call(index, cost));
        }
        let now = self.node_now(index);
        let units = Cost::new(cost).unwrap();
        let plan = Plan {
            terms: &self.terms,
            round_trip: self.weather.delay,
        };
        let Node { holder, counts, .. } = &mut self.nodes[index];
        match holder.acquire(now, units, tries > 0, plan, counts) {
            Step::Admitted(parts, ahead) => {
                self.decisions += 1;
                let decision = parts.admission(units);
                self.admit(index, self.now, decision.charge().unwrap());
                if let Some(request) = ahead {
                    self.send(index, request, Purpose::Ahead);
                }
            }
            Step::Refused(..) => self.decisions += 1,
            Step::Ask(request) => self.send(index, request, Purpose::Call),
            Step::Wait if tries > 4 => self.send(index, Request::beside(units, now), Purpose::Call),
            Step::Wait => self.nodes[index].waiting.push((cost, tries + 1)),
        }
    }

    fn admit(&mut self, node: usize, at: u64, charge: Charge) {
        let cost = charge.cost;
        let admission = self.admissions.len();
        self.admissions.push(Admission { at, cost });
        self.nodes[node].open.push(Open { admission, charge });
    }

    fn send(&mut self, node: usize, request: Request, purpose: Purpose) {
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

    fn arrive(&mut self, id: usize) {
        let Request { cost, up_to, .. } = self.sent[id].request;
        let now = self.store_now();
        let spend = Spend::exactly(cost).up_to(up_to);
        let rule = match self.sent[id].purpose {
            Purpose::Plain => self.rule,
            _ => &self.held,
        };
        let cost = spend.in_state(rule, self.state.as_ref(), now);
        let step = rule.step(&mut self.state, now, cost);
        let decision = match step {
            Decided::Wrote(decision) | Decided::Kept(decision) => decision,
        };
        if decision.is_admitted() {
            let end = self.now + decision.reset_after().as_nanos() as u64;
            self.openings.push((self.now, end));
        }
        if !self.happens(self.weather.loss) {
            let at = self.now + self.random.up_to(self.weather.delay);
            self.at(at, Event::Answer(id, decision));
        }
    }

    fn answer(&mut self, id: usize, answer: Decision) {
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
        request.is_ahead |= was_done;
        // The store admitted this call itself, when it said so.
        let at = answer.at().as_nanos() - self.store_offset;
        let validity = self.held.validity(&answer, self.hold);
        let answered = Answer::new(answer, validity);
        match purpose {
            Purpose::Crowded => {
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
                    self.decisions += 1;
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

    fn timeout(&mut self, id: usize) {
        let index = self.sent[id].node;
        if self.sent[id].is_done || self.sent[id].life != self.nodes[index].life {
            return;
        }
        self.sent[id].is_done = true;
        if matches!(self.sent[id].purpose, Purpose::Crowded | Purpose::Plain) {
            return;
        }
        let mut request = self.sent[id].request;
        self.nodes[index].holder.ended(&request);
        if self.weather.broken == Broken::TimeoutGrants {
            let units = Cost::new(request.up_to.min(self.capacity)).unwrap_or(request.cost);
            let store_now = Timestamp::from_nanos(self.store_offset + self.now);
            let step = self.held.step(&mut None, store_now, units);
            let (Decided::Wrote(granted) | Decided::Kept(granted)) = step;
            let validity = self.held.validity(&granted, self.hold);
            request.is_ahead = true;
            self.take_in(index, &request, &Answer::new(granted, validity));
        }
        self.wake(index);
    }

    fn wake(&mut self, index: usize) {
        for (cost, tries) in std::mem::take(&mut self.nodes[index].waiting) {
            self.call(index, cost, tries);
        }
    }

    /// Corrects an earlier charge of a node.
    fn settle(&mut self, index: usize) {
        let (now, open) = (self.node_now(index), self.nodes[index].open.len());
        if open == 0 || self.now < self.nodes[index].frozen_until {
            return;
        }
        let open = self.random.up_to(open as u64 - 1) as usize;
        let Open { admission, charge } = self.nodes[index].open.swap_remove(open);
        let actual = self.random.up_to(2 * charge.cost);
        self.correct(index, now, admission, charge, actual);
    }

    /// Shuts the node down: it gives back what is left, and another one starts in its place.
    fn release(&mut self, index: usize) {
        if self.now < self.nodes[index].frozen_until {
            return;
        }
        let now = self.node_now(index);
        let Node { holder, counts, .. } = &mut self.nodes[index];
        for (mut charge, units) in holder.take_out(now, counts) {
            if self.weather.broken == Broken::ReturnAnyway {
                let anyway =
                    |position: Position| Position::new(position.end(), position.given_back());
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
    pub(super) fn settle_last(&mut self, index: usize, actual: u64) {
        let now = self.node_now(index);
        if let Some(Open { admission, charge }) = self.nodes[index].open.pop() {
            self.correct(index, now, admission, charge, actual);
        }
    }

    fn correct(
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
                    now.saturating_add(self.hold + self.hold),
                    0,
                )),
                _ => charge.position,
            };
            let Node { holder, counts, .. } = &mut self.nodes[index];
            holder.give_back(now, cost - actual, position, &self.terms, counts);
            return;
        } else {
            let more = actual - cost;
            let Node { holder, counts, .. } = &mut self.nodes[index];
            let lacking = holder.take_by_force(now, more, counts);
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

    /// A2 and A3: each unit is accounted for, and no more of them can be spent than the rule holds.
    fn check(&self) {
        if self.weather.broken != Broken::Nothing {
            return;
        }
        let mut all_left = 0;
        for (index, node) in self.nodes.iter().enumerate() {
            let Counts {
                granted,
                spent,
                expired,
                returned,
                lost,
                ..
            } = node.counts;
            let left = node.holder.left();
            assert_eq!(
                granted,
                spent.wrapping_add(left + expired + returned + lost),
                "{:?} and {left} left",
                node.counts
            );
            assert!(spent <= granted, "{:?}", node.counts);
            if self.now >= node.frozen_until {
                let left = node.holder.left_at(self.node_now(index));
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
            .held
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
