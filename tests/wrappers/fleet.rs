//! How much passes beyond a rule while a store is lost, and after: what the documentation of `FallBackTo` promises, held
//! against every span of time in which anything passed.

use std::time::Duration;

use futures_util::FutureExt;
use proptest::prelude::*;
use tollgate::{
    Quota, TokenBucket,
    clock::{Clock, ManualClock},
    store::{FallBackTo, Local, LocalBuilder, StoreExt},
};

use crate::fakes::{Asked, Fault, Kind, Remote};

type Line = Remote<TokenBucket, ManualClock>;

/// A node: its line to the store that all share, and what it wrapped it in.
struct Node {
    line: Line,
    store: FallBackTo<Line, Local<TokenBucket, ManualClock>, TokenBucket>,
}

/// A call that was decided.
#[derive(Clone, Copy, Debug)]
struct Passed {
    at: u64,
    units: u64,
    /// Whether the node decided by itself.
    by_itself: bool,
}

struct Fleet {
    clock: ManualClock,
    nodes: Vec<Node>,
    asked: Asked,
    share: TokenBucket,
    /// All decisions on the one key that matters, the refused ones with no units.
    log: Vec<Passed>,
}

impl Fleet {
    fn new(rule: TokenBucket, nodes: u64, parts: u64) -> Self {
        let clock = ManualClock::default();
        let remote = Line::with_clock(clock.clone());
        let node = |_| {
            let line = remote.another_line();
            let local = LocalBuilder::new()
                .capacity(100)
                .clock(clock.clone())
                .build();
            let store = line.clone().fall_back_to(local).share(1, parts);
            Node { line, store }
        };
        Self {
            nodes: (0..nodes).map(node).collect(),
            clock,
            asked: Asked::of(rule),
            share: rule.scaled(1, parts),
            log: Vec::new(),
        }
    }

    /// A call on a key; only those on key 0 are looked at.
    fn call(&mut self, node: usize, key: u64, units: u64) {
        let store = &self.nodes[node].store;
        let decided = store.decided();
        // The fake answers at the first poll or within the call: nothing is under way in between.
        let call = self.asked.acquire(store, key, units).now_or_never();
        let decision = call.expect("the store waits for nothing").unwrap();
        assert!(!decision.is_undecided());
        if key == 0 {
            self.log.push(Passed {
                at: self.clock.now().as_nanos(),
                units: if decision.is_admitted() { units } else { 0 },
                by_itself: store.decided() > decided,
            });
        }
    }

    fn set_lines(&self, fault: Fault) {
        self.nodes.iter().for_each(|node| node.line.usually(fault));
    }

    /// Every settlement is one that the share could have admitted at once, so that nobody is locked out for longer than that.
    fn settlements_are_bounded(&self) -> Result<(), TestCaseError> {
        for node in &self.nodes {
            for settled in node.line.arrived().into_iter().flatten() {
                prop_assert!(settled.actual <= self.share.capacity());
                prop_assert_eq!(settled.cost, 0);
            }
            prop_assert_eq!(node.store.lost(), 0);
        }
        Ok(())
    }

    /// Calls `look` with every span from one call to another, and with what passed in it beyond the rule.
    fn spans(
        &self,
        mut look: impl FnMut(usize, usize, Tokens) -> Result<(), TestCaseError>,
    ) -> Result<(), TestCaseError> {
        for first in 0..self.log.len() {
            let mut passed = 0;
            for last in first..self.log.len() {
                passed += self.log[last].units;
                let nanos = self.log[last].at - self.log[first].at;
                look(
                    first,
                    last,
                    self.whole(passed) - self.bucket(&self.asked.rule, nanos),
                )?;
            }
        }
        Ok(())
    }

    /// The most that passed beyond the rule in any span.
    fn most_beyond(&self) -> Tokens {
        let mut most = Tokens::MIN;
        let looked = self.spans(|_, _, beyond| {
            most = most.max(beyond);
            Ok(())
        });
        looked.unwrap();
        most
    }

    fn whole(&self, tokens: u64) -> Tokens {
        Tokens::from(tokens) * self.asked.rule.quota().period().as_nanos() as Tokens * PARTS
    }

    /// What comes in so many nanoseconds.
    fn refill(&self, nanos: u64) -> Tokens {
        Tokens::from(nanos) * Tokens::from(self.asked.rule.quota().amount()) * PARTS
    }

    /// What a rule lets pass in so many nanoseconds: its burst, and what comes in.
    fn bucket(&self, rule: &TokenBucket, nanos: u64) -> Tokens {
        let share = rule.quota();
        let quota = self.asked.rule.quota();
        let [ours, all] = [share, quota].map(|quota| {
            (
                quota.amount() as Tokens,
                quota.period().as_nanos() as Tokens,
            )
        });
        // The rate of the share as a part of that of the rule: exact, for the parts that are tried.
        let part = PARTS * ours.0 * all.1 / (ours.1 * all.0);
        self.whole(rule.capacity()) + self.refill(nanos) / PARTS * part
    }
}

/// Tokens, counted exactly: in parts that each are what comes in a nanosecond, over [`PARTS`] times the amount of the quota.
type Tokens = i128;

/// A multiple of all numbers of nodes that are tried.
const PARTS: Tokens = 12;

const DOWN: Fault = Fault::Fails(Kind::Timeout);

/// Failures that are sure not to have been decided there, and those that are.
fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => Just(DOWN),
        2 => Just(Fault::FailsAtOnce(Kind::Unavailable)),
        1 => Just(Fault::Lossy(Kind::Timeout)),
    ]
}

#[derive(Clone, Debug)]
enum Event {
    /// In thousandths of the time that the bucket takes to fill.
    Pass(u64),
    Call {
        node: prop::sample::Index,
        key: u64,
        units: u64,
    },
    Line {
        node: prop::sample::Index,
        fault: Option<Fault>,
    },
}

fn events(keys: u64) -> impl Strategy<Value = Vec<Event>> {
    let pass = prop_oneof![4 => 0..100_u64, 1 => 0..2000_u64];
    let units = prop_oneof![3 => Just(1_u64), 2 => 1..6_u64];
    let event = prop_oneof![
        3 => pass.prop_map(Event::Pass),
        10 => (any::<prop::sample::Index>(), 0..keys, units)
            .prop_map(|(node, key, units)| Event::Call { node, key, units }),
        2 => (any::<prop::sample::Index>(), prop::option::of(faults()))
            .prop_map(|(node, fault)| Event::Line { node, fault }),
    ];
    prop::collection::vec(event, 1..120)
}

fn rules() -> impl Strategy<Value = TokenBucket> {
    (1..30_u64, 1..20_000_u64, 1..30_u64).prop_map(|(amount, millis, burst)| {
        TokenBucket::new(Quota::new(amount, Duration::from_millis(millis))).burst(burst)
    })
}

impl Fleet {
    fn run(&mut self, events: &[Event]) {
        let quota = self.asked.rule.quota();
        let fill = u128::from(self.asked.rule.capacity()) * quota.period().as_nanos()
            / u128::from(quota.amount());
        for event in events {
            match event {
                Event::Pass(thousandths) => {
                    let nanos = fill * u128::from(*thousandths) / 1000;
                    self.clock.advance(Duration::from_nanos(nanos as u64));
                }
                Event::Call { node, key, units } => {
                    self.call(node.index(self.nodes.len()), *key, *units);
                }
                Event::Line { node, fault } => {
                    let node = &self.nodes[node.index(self.nodes.len())];
                    node.line.usually(fault.unwrap_or(Fault::None));
                }
            }
        }
    }
}

proptest! {
    /// One node, one key, failures as they come. A span that begins while the store is lost holds the rule exactly; else each
    /// outage that begins in it adds the node's share of a burst at most, and no more than its share of what came in meanwhile,
    /// once the store is back.
    #[test]
    fn each_outage_adds_a_share_of_a_burst_at_most(rule in rules(), parts in 1..4_u64, events in events(1)) {
        prop_assume!(rule.capacity() >= parts);
        let mut fleet = Fleet::new(rule, 1, parts);
        fleet.run(&events);
        fleet.settlements_are_bounded()?;
        fleet.spans(|first, last, beyond| {
            let log = &fleet.log[first..=last];
            let (mut allowed, mut since_the_store_admitted) = (0, 0);
            let mut was_lost = first > 0 && fleet.log[first - 1].by_itself;
            let mut lost_at = None;
            for call in log {
                if call.by_itself && !was_lost {
                    lost_at = Some(call.at);
                }
                was_lost = call.by_itself;
                if !was_lost {
                    let came_in = lost_at.take().map_or(0, |at| fleet.refill(call.at - at));
                    since_the_store_admitted += came_in.min(fleet.whole(rule.capacity())) / parts as Tokens;
                    if call.units > 0 {
                        allowed += since_the_store_admitted;
                        since_the_store_admitted = 0;
                    }
                }
            }
            // What was settled last may not have been repaid yet.
            let after = log.iter().rev().take_while(|call| call.by_itself || call.units == 0);
            if after.into_iter().any(|call| call.by_itself) {
                allowed += fleet.whole(fleet.share.capacity());
            }
            prop_assert!(beyond <= allowed, "{beyond} > {allowed} in {log:?}");
            Ok(())
        })?;
    }

    /// Any number of nodes, each with a line of its own that fails as it likes, and several keys. What a node admits by itself
    /// never exceeds its share of the rule, and what the store admits never exceeds the rule.
    #[test]
    fn however_often_lines_fail_no_node_exceeds_its_share(
        rule in rules(), nodes in 1..4_u64, events in events(3),
    ) {
        prop_assume!(rule.capacity() >= nodes);
        let mut fleet = Fleet::new(rule, nodes, nodes);
        fleet.run(&events);
        fleet.settlements_are_bounded()?;
        fleet.spans(|first, last, beyond| {
            let nanos = fleet.log[last].at - fleet.log[first].at;
            prop_assert!(beyond <= fleet.bucket(&fleet.share, nanos) * Tokens::from(nodes));
            Ok(())
        })?;
    }

    /// All nodes lose the store at once and find it again at once. While it is lost, a burst passes above the rule
    /// at most, all nodes together; after that another one at most, until each node has settled.
    #[test]
    fn an_outage_of_all_adds_a_burst_and_another_until_all_have_settled(
        rule in rules(), nodes in 1..4_u64,
        before in events(1), during in events(1), after in events(1), fault in faults(),
    ) {
        prop_assume!(rule.capacity() >= nodes);
        let mut fleet = Fleet::new(rule, nodes, nodes);
        fleet.run(&calls(before));
        let lost = fleet.log.len();
        fleet.set_lines(fault);
        fleet.run(&calls(during));
        let found = fleet.log.len();
        fleet.set_lines(Fault::None);
        fleet.run(&calls(after));
        fleet.settlements_are_bounded()?;
        let shares = fleet.whole(fleet.share.capacity() * nodes);
        fleet.spans(|first, last, beyond| {
            // With one node, its first call settles.
            let unsettled = if last < found || nodes == 1 { 0 } else { shares };
            let lost_in_it = if first >= lost || last < lost { 0 } else { shares };
            prop_assert!(beyond <= lost_in_it + unsettled, "{beyond} from {first} to {last} of {:?}", fleet.log);
            Ok(())
        })?;
    }

    /// Nobody is locked out by what is settled: once its share and its bucket would have been refilled, a key has
    /// its whole burst.
    #[test]
    fn after_an_outage_a_key_rests_and_has_its_burst(
        rule in rules(), nodes in 1..4_u64, during in events(1),
    ) {
        prop_assume!(rule.capacity() >= nodes);
        let mut fleet = Fleet::new(rule, nodes, nodes);
        fleet.set_lines(DOWN);
        fleet.run(&calls(during));
        fleet.set_lines(Fault::None);
        for node in 0..fleet.nodes.len() {
            fleet.call(node, 0, 1);
            let owing = fleet.nodes[node].store.owing();
            prop_assert_eq!(owing, 0);
        }
        // All shares together are no more than the bucket; each node has just asked for one more.
        let nanos = refill_time(&rule, rule.capacity() + nodes);
        fleet.clock.advance(Duration::from_nanos(nanos));
        fleet.log.clear();
        fleet.call(0, 0, rule.capacity());
        prop_assert_eq!(fleet.log[0].units, rule.capacity());
    }
}

/// Without what happens to the lines.
fn calls(mut events: Vec<Event>) -> Vec<Event> {
    events.retain(|event| !matches!(event, Event::Line { .. }));
    events
}

/// Nanoseconds until so many tokens have come, rounded up.
fn refill_time(rule: &TokenBucket, tokens: u64) -> u64 {
    let nanos = u128::from(tokens) * rule.quota().period().as_nanos();
    nanos.div_ceil(u128::from(rule.quota().amount())) as u64
}

/// The runs above meet what they are about.
#[test]
fn the_bounds_are_reached() {
    let rule = TokenBucket::per_hour(12);
    let mut fleet = Fleet::new(rule, 3, 3);
    let knock =
        |fleet: &mut Fleet| (0..3).for_each(|node| (0..20).for_each(|_| fleet.call(node, 0, 1)));
    knock(&mut fleet);
    fleet.set_lines(DOWN);
    knock(&mut fleet);
    // Twelve above the rule: four for each node.
    assert_eq!(fleet.most_beyond(), fleet.whole(12));
    fleet.set_lines(Fault::None);
    knock(&mut fleet);
    assert_eq!(fleet.most_beyond(), fleet.whole(12));
    assert!(fleet.nodes.iter().all(|node| node.store.settled() == 4));
}
