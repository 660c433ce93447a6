//! The admissions of several nodes during and after an outage of their store. Checks the promises
//! in the documentation of `Fallback`, for every kind of rule that has shares, with any differences
//! between the nodes' clocks.

use std::{future::IntoFuture, time::Duration};

use futures_util::FutureExt;
use num_traits::ToPrimitive;
use proptest::prelude::*;
use support::rational::{interval, whole};
use tollgate::{
    AnyRule, Decision, Quota, Timestamp, TokenBucket,
    algorithm::{Algorithm, FleetRule, Shareable},
    key::Key,
    store::{Fallback, FallbackBuilder, Local, LocalBuilder, Store, StoreExt},
    time::{Clock, ManualClock},
};

use crate::fakes::{Asked, Fault, Kind, Remote, at_once};

type Line<R> = Remote<R, ManualClock>;

type Falling<R> = Fallback<Line<R>, Local<R, ManualClock>, R>;

trait Rule: Algorithm {}
impl<R: Algorithm> Rule for R {}

/// A node: its clock, its connection to the shared store, and its wrapped store.
struct Node<R: Rule> {
    clock: ManualClock,
    line: Line<R>,
    store: Falling<R>,
}

/// A call on the observed key.
#[derive(Clone, Copy, Debug)]
struct Decided {
    at: u64,
    /// 0 if refused.
    units: u64,
    node: usize,
    /// `true` if the node's own store decided.
    alone: bool,
}

struct Fleet<R: Rule> {
    /// The clock of the store, which shows the true time.
    clock: ManualClock,
    remote: Line<R>,
    nodes: Vec<Node<R>>,
    asked: Asked<R>,
    log: Vec<Decided>,
}

fn by<R: Rule>(clock: &ManualClock) -> Local<R, ManualClock> {
    let builder = LocalBuilder::new().capacity(1000);
    builder.clock(clock.clone()).build()
}

impl<R: Rule> Fleet<R> {
    /// Creates a node with an equal share for each entry of `ahead`, the seconds by which its clock
    /// is ahead.
    fn new(rule: R, ahead: &[i64]) -> Self
    where
        R: Shareable,
    {
        let nodes = ahead.len() as u64;
        Self::with(rule, ahead, |builder| builder.share(1, nodes))
    }

    /// Creates a node for each entry of `ahead`, the seconds by which its clock is ahead.
    fn with(
        rule: R,
        ahead: &[i64],
        share: impl Fn(FallbackBuilder<Line<R>, Local<R, ManualClock>>) -> Falling<R>,
    ) -> Self {
        let clock = ManualClock::default();
        let remote = Line::with_clock(clock.clone());
        let node = |ahead: &i64| {
            let now = clock.now().as_nanos();
            let now = now.saturating_add_signed(ahead * 1_000_000_000);
            let clock = ManualClock::new(Timestamp::from_nanos(now));
            let line = remote.another_line();
            let store = share(line.clone().fall_back_to(by(&clock)));
            Node { clock, line, store }
        };
        Self {
            nodes: ahead.iter().map(node).collect(),
            clock,
            remote,
            asked: Asked::of(rule),
            log: Vec::new(),
        }
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.nodes.iter().for_each(|node| node.clock.advance(by));
    }

    fn set_lines(&self, fault: Fault) {
        self.nodes.iter().for_each(|node| node.line.usually(fault));
    }

    fn call(&mut self, node: usize, key: u64, units: u64) -> Decision {
        let store = &self.nodes[node].store;
        let decided = store.decided();
        // The fake answers at the first poll or within the call, so no call stays in flight.
        let call = self.asked.acquire(store, key, units).now_or_never();
        let decision = call.expect("the store waits for nothing").unwrap();
        assert!(!decision.is_undecided());
        if key == 0 {
            self.log.push(Decided {
                at: self.clock.now().as_nanos(),
                units: if decision.is_admitted() { units } else { 0 },
                node,
                alone: store.decided() > decided,
            });
        }
        decision
    }

    /// Makes twenty calls on each node. Returns the admitted units.
    fn call_all_nodes(&mut self) -> u64 {
        let first = self.log.len();
        for node in 0..self.nodes.len() {
            for _ in 0..20 {
                self.call(node, 0, 1);
            }
        }
        self.log[first..].iter().map(|call| call.units).sum()
    }

    fn run(&mut self, fill: Duration, events: &[Event]) {
        for event in events {
            match event {
                Event::Pass(thousandths) => self.advance(fill * *thousandths / 1000),
                Event::Call { node, key, units } => {
                    self.call(node.index(self.nodes.len()), *key, *units);
                }
                Event::Line { node, fault } => {
                    self.nodes[node.index(self.nodes.len())]
                        .line
                        .usually(*fault);
                }
                Event::Settle { .. } => {}
            }
        }
    }

    /// Checks each span of the log, from one call to another, against the promise for a `bucket` of
    /// the rule.
    fn check_promise(&self, bucket: &TokenBucket) -> Result<(), TestCaseError> {
        let nodes = self.nodes.len();
        let share = Bound::of(&bucket.scaled(1, nodes as u64));
        let bound = Bound::of(bucket);
        for first in 0..self.log.len() {
            let mut there = 0;
            let mut alone = vec![0; nodes];
            // The start of each node's current outage, and the total duration of its earlier ones.
            let mut lost_at = vec![None; nodes];
            let (mut outages, mut lasted) = (0, 0);
            for last in first..self.log.len() {
                let call = &self.log[last];
                if call.alone {
                    alone[call.node] += call.units;
                    outages += i128::from(lost_at[call.node].is_none());
                    let since = lost_at[call.node].replace(call.at).unwrap_or(call.at);
                    lasted += i128::from(call.at - since);
                } else {
                    there += call.units;
                    lost_at[call.node] = None;
                }
                let span = &self.log[first..=last];
                let nanos = call.at - self.log[first].at;
                prop_assert!(bound.excess(there, nanos) <= 0, "{bucket}: {span:?}");
                for alone in &alone {
                    prop_assert!(share.excess(*alone, nanos) <= 0, "{share:?}: {span:?}");
                }
                // In all: b/n and the refill of a share for each outage of a node.
                let sum = there + alone.iter().sum::<u64>();
                let price =
                    outages * bound.ticks(share.burst) * nodes as i128 + lasted * TICKS_PER_NANO;
                let excess = bound.excess(sum, nanos) * nodes as i128;
                prop_assert!(excess <= price, "{excess} > {price}, {bucket}: {span:?}");
            }
        }
        Ok(())
    }
}

/// A tick is a third of a nanosecond.
const TICKS_PER_NANO: i128 = 3;

/// The bound of a bucket on admitted units: its burst, plus the refill at its documented rate,
/// whose interval between two tokens is rounded down to whole ticks.
#[derive(Debug)]
struct Bound {
    burst: u64,
    ticks_per_token: i128,
}

impl Bound {
    fn of(bucket: &TokenBucket) -> Self {
        let period = u64::try_from(bucket.quota().period().as_nanos()).unwrap();
        let most = bucket.capacity();
        let interval = interval(bucket.quota().amount(), period, most);
        let ticks = interval * whole(TICKS_PER_NANO);
        assert!(ticks.is_integer());
        Self {
            burst: most,
            ticks_per_token: ticks.to_i128().unwrap(),
        }
    }

    /// Returns the ticks that refill so many tokens.
    fn ticks(&self, tokens: u64) -> i128 {
        i128::from(tokens) * self.ticks_per_token
    }

    /// Returns by how much the units exceed the bound in a time span, in ticks of refill. Negative
    /// if they do not.
    fn excess(&self, units: u64, nanos: u64) -> i128 {
        self.ticks(units) - self.ticks(self.burst) - i128::from(nanos) * TICKS_PER_NANO
    }
}

/// Returns the time that a bucket takes to fill, rounded up.
fn fill(bucket: &TokenBucket) -> Duration {
    bucket.quota().period() * bucket.capacity() as u32 / bucket.quota().amount() as u32
        + Duration::from_nanos(1)
}

const DOWN: Fault = Fault::Fails(Kind::Timeout);

/// Generates failures that were certainly not decided by the store, and failures that were.
fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => Just(DOWN),
        2 => Just(Fault::FailsAtOnce(Kind::Unavailable)),
        1 => Just(Fault::Lossy(Kind::Timeout)),
    ]
}

#[derive(Clone, Debug)]
enum Event {
    /// In thousandths of the time that a bucket takes to fill.
    Pass(u32),
    Call {
        node: prop::sample::Index,
        key: u64,
        units: u64,
    },
    Line {
        node: prop::sample::Index,
        fault: Fault,
    },
    /// Settles the charge of some call, if it has one.
    Settle {
        charge: prop::sample::Index,
        actual: u64,
    },
}

fn events(keys: u64) -> impl Strategy<Value = Vec<Event>> {
    let pass = prop_oneof![4 => 0..100_u32, 1 => 0..2000_u32];
    let units = prop_oneof![3 => Just(1_u64), 2 => 1..6_u64];
    let fault = prop_oneof![1 => Just(Fault::None), 1 => faults()];
    let event = prop_oneof![
        3 => pass.prop_map(Event::Pass),
        10 => (any::<prop::sample::Index>(), 0..keys, units)
            .prop_map(|(node, key, units)| Event::Call { node, key, units }),
        2 => (any::<prop::sample::Index>(), fault)
            .prop_map(|(node, fault)| Event::Line { node, fault }),
        2 => (any::<prop::sample::Index>(), 0..10_u64)
            .prop_map(|(charge, actual)| Event::Settle { charge, actual }),
    ];
    prop::collection::vec(event, 1..120)
}

/// Returns the events without outages.
fn calls(mut events: Vec<Event>) -> Vec<Event> {
    events.retain(|event| !matches!(event, Event::Line { .. }));
    events
}

fn bucket() -> impl Strategy<Value = TokenBucket> {
    (1..30_u64, 1..20_000_u64, 3..30_u64, 0..60_u64).prop_map(|(amount, millis, burst, initial)| {
        let quota = Quota::new(amount, Duration::from_millis(millis));
        let bucket = TokenBucket::new(quota).burst(burst);
        match initial {
            0..30 => bucket.initial(initial.min(burst)),
            _ => bucket,
        }
    })
}

/// Generates the seconds by which the clocks of one to three nodes are ahead.
fn clocks() -> impl Strategy<Value = Vec<i64>> {
    let ahead = prop_oneof![Just(0_i64), Just(600), Just(-600), -100_000..100_000_i64];
    prop::collection::vec(ahead, 1..4)
}

/// Runs a block with a rule of every kind that has shares, and its buckets.
macro_rules! of_every_kind {
    ($buckets:expr, |$rule:ident, $made_of:ident| $test:block) => {{
        let [a, b, c] = $buckets;
        of_every_kind!(@ a, [a], |$rule, $made_of| $test);
        of_every_kind!(@ AnyRule::from(a), [a], |$rule, $made_of| $test);
        of_every_kind!(@ (a, b), [a, b], |$rule, $made_of| $test);
        of_every_kind!(@ (AnyRule::from(a), (b, c)), [a, b, c], |$rule, $made_of| $test);
    }};
    (@ $value:expr, $buckets:expr, |$rule:ident, $made_of:ident| $test:block) => {{
        let ($rule, $made_of) = ($value, $buckets);
        $test
    }};
}

proptest! {
    // Each case runs one rule of every kind.
    #![proptest_config(ProptestConfig::with_cases(support::cases(96) as u32))]

    /// The connections of one or several nodes fail at random. The store's admissions obey the
    /// rule, and a node's own admissions obey its share. So an outage adds at most a share of the
    /// burst, and the share's refill during the outage.
    #[test]
    fn an_outage_of_a_node_adds_at_most_a_share_of_burst_and_refill(
        buckets in [bucket(), bucket(), bucket()], ahead in clocks(), events in events(2),
    ) {
        of_every_kind!(buckets, |rule, made_of| {
            let mut fleet = Fleet::new(rule, &ahead);
            fleet.run(fill(&made_of[0]), &events);
            for bucket in &made_of {
                fleet.check_promise(bucket)?;
            }
        });
    }

    /// All nodes lose the store at the same time, and get it back at the same time. During the
    /// outage, at most a burst above the rule passes in all. After it, the store's refill passes,
    /// which is at most another burst.
    #[test]
    fn an_outage_of_all_nodes_adds_at_most_a_burst_and_the_refill(
        buckets in [bucket(), bucket(), bucket()], ahead in clocks(), fault in faults(),
        [before, during, after] in [events(1), events(1), events(1)].prop_map(|phases| phases.map(calls)),
    ) {
        of_every_kind!(buckets, |rule, made_of| {
            let mut fleet = Fleet::new(rule, &ahead);
            let fill = fill(&made_of[0]);
            fleet.run(fill, &before);
            let (lost, lost_at) = (fleet.log.len(), fleet.clock.now());
            fleet.set_lines(fault);
            fleet.run(fill, &during);
            let (found, lasted) = (fleet.log.len(), fleet.clock.now().saturating_since(lost_at));
            fleet.set_lines(Fault::None);
            fleet.run(fill, &after);
            for bucket in &made_of {
                let nodes = ahead.len() as u64;
                let bound = Bound::of(bucket);
                let shares = bound.ticks(bucket.scaled(1, nodes).capacity() * nodes);
                let refilled = lasted.as_nanos() as i128 * TICKS_PER_NANO;
                let refilled = refilled.min(bound.ticks(bound.burst));
                for first in 0..fleet.log.len() {
                    let mut sum = 0;
                    for last in first..fleet.log.len() {
                        let call = &fleet.log[last];
                        sum += call.units;
                        let excess = bound.excess(sum, call.at - fleet.log[first].at);
                        let price = match (first < lost, first < found, last < lost, last < found) {
                            // The span starts before the outage, and ends in it or after it.
                            (true, _, false, true) => shares,
                            (true, _, false, false) => shares + refilled,
                            // The span starts in the outage, and ends after it.
                            (false, true, _, false) => shares,
                            _ => 0,
                        };
                        prop_assert!(excess <= price, "{excess} > {price}, {bucket}: {first}, {last}, {:?}", fleet.log);
                    }
                }
            }
        });
    }

    /// Compares with a twin of the store that sees no outage, and with a twin of each node's own
    /// store. A charge, settlement or clock of one side never affects the other.
    #[test]
    fn the_store_and_each_node_decide_independently(
        buckets in [bucket(), bucket(), bucket()], ahead in clocks(), events in events(2),
    ) {
        of_every_kind!(buckets, |rule, made_of| {
            let share = rule.node_share(1, ahead.len() as u64).unwrap();
            as_if_alone(Fleet::new(rule, &ahead), share, fill(&made_of[0]), &events)?;
        });
    }

}

proptest! {
    /// Under rules whose share must be given, because it cannot be computed.
    #[test]
    fn under_any_rule_the_store_and_each_node_decide_independently(
        (rule, share) in prop::sample::select(&RULES), ahead in clocks(), events in events(2),
    ) {
        let [rule, share] = [rule, share].map(|rule| rule.parse::<AnyRule>().unwrap());
        let fleet = with_share(&rule, &share, &ahead);
        as_if_alone(fleet, share, Duration::from_secs(10), &events)?;
    }
}

/// A rule of each algorithm, and the rule that a node uses on its own.
const RULES: [(&str, &str); 10] = [
    ("token-bucket 8/10s", "token-bucket 4/10s"),
    ("leaky-bucket 8/10s queue=6", "leaky-bucket 4/10s queue=3"),
    ("fixed-window 8/10s", "fixed-window 4/10s"),
    (
        "sliding-window 8/10s slices=5",
        "sliding-window 4/10s slices=5",
    ),
    ("sliding-log 8/10s", "sliding-log 4/10s"),
    (
        "cascade 5/10s burst=3 > 2/10s burst=4",
        "cascade 3/10s burst=2 > 1/10s burst=2",
    ),
    (
        "three-color 5/10s burst=3 peak=10/10s peak-burst=6",
        "three-color 2/10s burst=2 peak=5/10s peak-burst=3",
    ),
    ("warm-up 9/1s over=2s", "warm-up 6/1s over=2s"),
    (
        "warm-up-spaced 20/1s over=400ms",
        "warm-up-spaced 10/1s over=400ms",
    ),
    (
        "token-bucket 8/10s & sliding-log 20/1m",
        "token-bucket 4/10s & sliding-log 10/1m",
    ),
];

fn with_share(rule: &AnyRule, share: &AnyRule, ahead: &[i64]) -> Fleet<AnyRule> {
    Fleet::with(rule.clone(), ahead, |builder| {
        let share = share.clone();
        builder.rule(move |_| Some(share.clone()))
    })
}

fn as_if_alone<R: Rule>(
    fleet: Fleet<R>,
    share: R,
    fill: Duration,
    events: &[Event],
) -> Result<(), TestCaseError> {
    let remote = by::<R>(&fleet.clock);
    let own: Vec<_> = fleet
        .nodes
        .iter()
        .map(|node| by::<R>(&node.clock))
        .collect();
    let share = Asked::of(share);
    let mut lines = vec![Fault::None; own.len()];
    let mut charges = Vec::new();
    for event in events {
        match event {
            Event::Pass(thousandths) => fleet.advance(fill * *thousandths / 1000),
            Event::Line { node, fault } => {
                let node = node.index(lines.len());
                lines[node] = *fault;
                fleet.nodes[node].line.usually(*fault);
            }
            Event::Call { node, key, units } => {
                let node = node.index(lines.len());
                let call = fleet.asked.acquire(&fleet.nodes[node].store, *key, *units);
                let decision = call.now_or_never().unwrap().unwrap();
                let there = || remote.decide(&fleet.asked.ask(*key, *units));
                let here = || own[node].decide(&share.ask(*key, *units));
                let twin = match lines[node] {
                    Fault::None => there(),
                    Fault::Lossy(_) => {
                        there();
                        here()
                    }
                    _ => here(),
                };
                prop_assert_eq!(decision, twin);
                if { decision }.take_charge().is_some() {
                    charges.push((node, *key, lines[node] != Fault::None, decision, twin));
                }
            }
            Event::Settle { charge, actual } => {
                if charges.is_empty() {
                    continue;
                }
                let charge = charges.swap_remove(charge.index(charges.len()));
                let (node, key, alone, decision, twin) = charge;
                let store = &fleet.nodes[node].store;
                let failures = store.failures();
                let settlement = fleet.asked.settlement(key, &decision, *actual);
                let settled = store.settle(vec![settlement]);
                settled.into_future().now_or_never().unwrap().unwrap();
                let is_lost = !alone && lines[node] != Fault::None;
                prop_assert_eq!(store.failures() - failures, u64::from(is_lost));
                if alone {
                    at_once(Store::settle(
                        &own[node],
                        vec![share.settlement(key, &twin, *actual)],
                    ));
                } else if matches!(lines[node], Fault::None | Fault::Lossy(_)) {
                    let settlement = fleet.asked.settlement(key, &twin, *actual);
                    at_once(Store::settle(&remote, vec![settlement]));
                }
            }
        }
    }
    for key in [0, 1_u64].map(Key::from) {
        let look = |store: &Local<R, ManualClock>| {
            store.look(&fleet.asked.policy, &fleet.asked.rule, &key)
        };
        prop_assert_eq!(look(&fleet.remote.local), look(&remote));
    }
    Ok(())
}

/// Under every rule, also if charges made during the outage are settled during it or after it. The
/// store decides as if it had never seen any of them.
#[test]
fn a_node_whose_clock_is_ahead_does_not_extend_refusals() {
    for (rule, share) in RULES {
        let [rule, share] = [rule, share].map(|rule| rule.parse::<AnyRule>().unwrap());
        for ahead in [&[600][..], &[-600], &[600, 0, 86_400]] {
            for (actual, settled_after) in [(0, false), (0, true), (9, false), (9, true)] {
                let mut fleet = with_share(&rule, &share, ahead);
                let alone = by::<AnyRule>(&fleet.clock);
                fleet.set_lines(DOWN);
                let calls = 0..ahead.len();
                let decisions: Vec<_> = calls.map(|node| fleet.call(node, 0, 1)).collect();
                fleet.call_all_nodes();
                if settled_after {
                    fleet.set_lines(Fault::None);
                }
                for (node, decision) in decisions.iter().enumerate() {
                    let settlement = fleet.asked.settlement(0, decision, actual);
                    let settled = fleet.nodes[node].store.settle(vec![settlement]);
                    settled.into_future().now_or_never().unwrap().unwrap();
                }
                fleet.set_lines(Fault::None);
                for node in (0..ahead.len()).cycle().take(60) {
                    let decision = fleet.call(node, 0, 1);
                    let expected = alone.decide(&fleet.asked.ask(0, 1));
                    assert_eq!(decision, expected, "{rule}, {ahead:?}");
                    if !decision.is_admitted() {
                        fleet.advance(decision.retry_after().unwrap());
                    }
                }
            }
        }
    }
}

/// The numbers on the page for operators are those of an outage under full load.
#[test]
fn an_outage_admits_the_documented_extra_once() {
    let rule = TokenBucket::per_hour(12);
    let hour = Duration::from_secs(3600);
    let mut fleet = Fleet::new(rule, &[0, 600, -600]);
    assert_eq!(fleet.call_all_nodes(), 12);
    // All nodes: a share of the burst on each, plus the rule's refill of an hour.
    fleet.set_lines(DOWN);
    assert_eq!(fleet.call_all_nodes(), 12);
    fleet.advance(hour);
    assert_eq!(fleet.call_all_nodes(), 12);
    // Afterwards: the refill of the store in that hour.
    fleet.set_lines(Fault::None);
    assert_eq!(fleet.call_all_nodes(), 12);
    // An immediate second outage: the shares are exhausted.
    fleet.set_lines(DOWN);
    assert_eq!(fleet.call_all_nodes(), 0);
    fleet.set_lines(Fault::None);
    // One node, an hour later: a third of the burst, while the store serves the others with the
    // whole.
    fleet.advance(hour);
    fleet.nodes[0].line.usually(DOWN);
    assert_eq!(fleet.call_all_nodes(), 4 + 12);
    fleet.advance(hour);
    assert_eq!(fleet.call_all_nodes(), 4 + 12);
}
