//! The events of a fleet that are drawn by chance, and the faults that are made on purpose.

use super::{Event, Fleet, Node, Purpose};
use crate::{algorithm::Leasable, decision::Cost, fleet::lease::Request, random::Random};

/// A law that is broken on purpose, to see that the invariants notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::fleet::lease::proof) enum Broken {
    #[default]
    Nothing,
    /// L1: lives count from the instant at which the answer came.
    LifeFromAnswer,
    /// L1: lives are not shortened for clocks that are slow.
    Drift,
    /// L2: a request that timed out is taken as granted.
    TimeoutGrants,
    /// L3: what is left, or was paid by the store, is refunded there although others have leased
    /// since.
    ReturnAnyway,
    /// L4: a refund lives for a whole hold again.
    RefundLivesAnew,
    /// L5: a debt is dropped.
    DebtForgotten,
    /// The store runs the rule as written.
    NotStricter,
}

/// The events of a schedule, most of them as chances in a thousand.
#[derive(Clone, Debug, Default)]
pub(in crate::fleet::lease::proof) struct Weather {
    pub(in crate::fleet::lease::proof) nodes: u64,
    pub(in crate::fleet::lease::proof) calls: u64,
    pub(in crate::fleet::lease::proof) max_cost: u64,
    /// The longest gap between two calls; most are much shorter.
    pub(in crate::fleet::lease::proof) gap: u64,
    pub(in crate::fleet::lease::proof) delay: u64,
    pub(in crate::fleet::lease::proof) timeout: u64,
    pub(in crate::fleet::lease::proof) loss: u64,
    pub(in crate::fleet::lease::proof) repeat: u64,
    pub(in crate::fleet::lease::proof) death: u64,
    pub(in crate::fleet::lease::proof) freeze: u64,
    pub(in crate::fleet::lease::proof) settle: u64,
    pub(in crate::fleet::lease::proof) release: u64,
    pub(in crate::fleet::lease::proof) grant: u64,
    pub(in crate::fleet::lease::proof) reset: u64,
    /// Calls of nodes without leases, which decide by the rule as it is written.
    pub(in crate::fleet::lease::proof) plain: u64,
    /// Clocks run fast or slow by up to so many millionths.
    pub(in crate::fleet::lease::proof) drift: u64,
    pub(in crate::fleet::lease::proof) late_answers: bool,
    pub(in crate::fleet::lease::proof) is_trap: bool,
    pub(in crate::fleet::lease::proof) refunds: bool,
    pub(in crate::fleet::lease::proof) broken: Broken,
}

impl Weather {
    pub(in crate::fleet::lease::proof) fn random(random: &mut Random, duration: u64) -> Self {
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
            gap: 1 + random.up_to(2 * duration),
            delay: random.up_to(duration) >> random.up_to(5),
            timeout: duration / 4 + random.up_to(duration),
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

    /// Nothing goes wrong, and an answer takes up to `round_trip`.
    pub(in crate::fleet::lease::proof) fn calm(nodes: u64, round_trip: u64) -> Self {
        Self {
            nodes,
            max_cost: 1,
            delay: round_trip / 2,
            timeout: 10 * round_trip,
            ..Self::default()
        }
    }
}

impl<R: Leasable> Fleet<'_, R> {
    /// Plays random calls, and then what is in flight.
    pub(in crate::fleet::lease::proof) fn play(&mut self) {
        let duration = self.duration.as_nanos() as u64;
        let (mut burst, mut pace, mut only, mut over_capacity) = (0, 0, None, false);
        let mut refunded = 0;
        let (mut phase, nodes) = (3, self.weather.nodes);
        let idle = 11 * self.rule.default_lease_duration().as_nanos() as u64;
        let calls = match self.weather.is_trap {
            true => 30 * nodes + self.capacity,
            false => self.weather.calls,
        };
        for _ in 0..calls {
            let mut gap = self.random.up_to(pace);
            if burst == 0 {
                // Units that wait until their end, and then many calls at once, are what comes
                // closest to the limit.
                gap = match self.random.up_to(3) {
                    0 => self.random.up_to(self.weather.gap),
                    1 => duration * 9 / 10 + self.random.up_to(duration / 5),
                    2 => self.random.up_to(duration),
                    _ => self.random.up_to(duration / 10),
                };
                burst = match self.random.up_to(2) {
                    0 => 1 + self.random.up_to(8),
                    _ => 1 + self.random.up_to(2 * self.capacity),
                };
                over_capacity = self.random.up_to(2) == 0;
                pace = [0, duration / 200, duration / 20][self.random.up_to(2) as usize];
                only = (self.random.up_to(2) == 0)
                    .then(|| self.random.up_to(self.weather.nodes - 1) as usize);
                if self.weather.is_trap {
                    // All nodes get used to many calls, lease much, and wait until their units are
                    // about to end. Then they spend them, and empty the store.
                    phase = (phase + 1) % 4;
                    only = None;
                    over_capacity = phase == 3;
                    (gap, burst, pace) = match phase {
                        0 => (idle, nodes * (6 + self.random.up_to(8)), 0),
                        1 => (
                            duration / 2 + self.random.up_to(duration / 2),
                            nodes * (1 + self.random.up_to(3)),
                            0,
                        ),
                        2 => (duration / 2 + self.random.up_to(duration), 12 * nodes, 0),
                        _ => (0, self.capacity + 10, 0),
                    };
                }
            }
            burst -= 1;
            let at = self.now + gap;
            self.until(at);
            self.now = at;
            // Calls that cost nothing in the end were offered all the same, so nodes lease much of
            // a full bucket.
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
            } else if over_capacity && (self.weather.is_trap || self.random.up_to(3) > 0) {
                let request = Request::beside(Cost::new(cost).unwrap(), self.node_now(node));
                self.send(node, request, Purpose::OverCapacity);
            } else {
                self.call(node, cost, 0);
            }
            self.check();
        }
        self.until(u64::MAX);
    }

    /// Kills or freezes the node, or settles one of its charges, by chance.
    pub(super) fn mischief(&mut self, node: usize) {
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
            self.nodes[node].state.forget_answers();
            self.at(soon, Event::Grant(units));
        }
        if self.happens(self.weather.reset) {
            self.more += self.capacity;
            let node_now = self.node_now(node);
            let Node { state, counts, .. } = &mut self.nodes[node];
            state.take_out(node_now, counts);
            state.forget_answers();
            self.at(soon, Event::Reset);
        }
    }
}
