//! The store in memory against a plain map that is written the slow obvious way: with room for all
//! keys both decide the same, and at any capacity no key is admitted above its limit.

mod calls;
mod plain;

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    time::Duration,
};

use proptest::prelude::*;
use tollgate::{
    AnyRule, Charge, Cost, Decision, FixedWindow, LeakyBucket, Policy, SlidingWindow, Timestamp,
    TokenBucket,
    algorithm::{Algorithm, packed::InMemory},
    store::{
        AtCapacity, Local, LocalBuilder, Store,
        driver::{Ask, Check, Settlement},
    },
    time::{Clock, ManualClock},
};

use calls::{ALL, Call, DAY, Op, ops, steps};
use plain::{Plain, Who};

const YEAR: u64 = 365 * DAY;

/// A call that can be settled.
struct Charged<A> {
    charge: Charge,
    /// The units that the plain map charged for it: who inherits waits longer, and is known by its
    /// departure.
    plain: Vec<Charge>,
    by: A,
}

struct Run<A: Algorithm> {
    clock: ManualClock,
    store: Local<A, ManualClock>,
    plain: Plain<A>,
    rules: Vec<A>,
    policies: [Policy; 2],
    charges: HashMap<Who, Charged<A>>,
    /// The largest number of states.
    all: usize,
    capacity: usize,
    at_capacity: AtCapacity,
    /// Keys that resets and clears took out.
    removed: usize,
}

impl<A: Algorithm<State: std::fmt::Debug> + Clone> Run<A> {
    /// With so much room for each kind of state that the rules keep.
    fn new(rules: Vec<A>, start: u64, capacity: usize, at_capacity: AtCapacity) -> Self {
        let kinds: HashSet<_> = rules.iter().map(A::state_kind).collect();
        let (all, capacity) = (ALL * kinds.len(), capacity * kinds.len());
        let clock = ManualClock::new(Timestamp::from_nanos(start));
        let store = LocalBuilder::new()
            .capacity(capacity)
            .at_capacity(at_capacity)
            .clock(clock.clone())
            .build();
        Self {
            plain: Plain::new(clock.now()),
            clock,
            store,
            rules,
            policies: ["fast", "slow"].map(Policy::new),
            charges: HashMap::new(),
            all,
            capacity,
            at_capacity,
            removed: 0,
        }
    }

    fn has_room_for_all(&self) -> bool {
        self.capacity >= self.all
    }

    fn rule(&self, call: Call) -> A {
        self.rules[call.rule % self.rules.len()].clone()
    }

    fn run(mut self, ops: Vec<Op>) -> Result<(), TestCaseError> {
        for op in ops {
            match op {
                Op::Spend(call) => {
                    self.spend(call)?;
                }
                Op::SpendInTime(call) => self.spend_in_time(call)?,
                Op::Several(calls) => self.several(&calls)?,
                Op::Look(call) => self.look(call)?,
                Op::Settle { call, late, actual } => self.settle(call, late, actual)?,
                Op::Reset(who) => {
                    let before = self.store.len();
                    self.store.reset(&self.policies[who.0], &who.1.into());
                    self.removed += before - self.store.len();
                    self.plain.reset(who);
                }
                Op::Clear => {
                    self.removed += self.store.len();
                    self.store.clear();
                    prop_assert!(self.store.is_empty());
                    self.plain.clear();
                }
                Op::Advance(nanos) => {
                    // Past 2^64 - 2^58 there is no time left for anything to refill.
                    if self.clock.now().as_nanos() < u64::MAX - nanos - (1 << 58) {
                        self.clock.advance(Duration::from_nanos(nanos));
                    }
                }
                Op::StepBack(nanos) => {
                    let back = self.clock.now().as_nanos().saturating_sub(nanos);
                    self.clock.set(Timestamp::from_nanos(back));
                    continue;
                }
            }
            self.counts_add_up()?;
        }
        Ok(())
    }

    fn counts_add_up(&self) -> Result<(), TestCaseError> {
        let stats = self.store.stats();
        prop_assert!(stats.keys <= self.capacity);
        prop_assert_eq!(stats.keys, self.store.len());
        let gone = stats.forgotten + stats.evicted + self.removed as u64;
        prop_assert_eq!(stats.inserted, stats.keys as u64 + gone, "{:?}", stats);
        if self.has_room_for_all() {
            let at_the_cap = stats.evicted + stats.turned_away + stats.let_through;
            prop_assert_eq!(at_the_cap, 0);
        }
        Ok(())
    }

    /// The store is about to read its clock, which may have stepped back.
    fn read_clock(&mut self) {
        self.plain.now = self.plain.now.max(self.clock.now());
    }

    fn spend(&mut self, call: Call) -> Result<Decision, TestCaseError> {
        self.read_clock();
        let rule = self.rule(call);
        let (policy, key) = (&self.policies[call.who.0], call.who.1.into());
        let cost = Cost::new(call.cost).unwrap();
        let ours = self.store.decide(&Ask::new(policy, &rule, key, cost));
        self.compare(call, &rule, &ours)?;
        Ok(ours)
    }

    /// Compares the answer to a call that was all by itself, or spent with all others.
    fn compare(&mut self, call: Call, rule: &A, ours: &Decision) -> Result<(), TestCaseError> {
        let (who, cost) = (call.who, Cost::new(call.cost).unwrap());
        let charges = RefCell::new(Vec::from_iter({ *ours }.take_charge()));
        if self.has_room_for_all() {
            let equal = self
                .plain
                .step(who, rule, cost, |theirs| facts(theirs) == facts(ours));
            prop_assert!(equal, "{:?} for {:?}", ours, call);
        } else if ours.is_undecided() {
            let admits = self.at_capacity == AtCapacity::AdmitNewcomers;
            prop_assert_eq!(ours.is_admitted(), admits);
        } else if ours.is_admitted() {
            let admits = self.plain.step(who, rule, cost, |theirs| {
                charges.borrow_mut().extend({ *theirs }.take_charge());
                theirs.is_admitted()
            });
            prop_assert!(admits, "above its limit: {:?} for {:?}", ours, call);
        } else {
            self.plain.refused(who, rule, cost);
        }
        if let Some(charge) = { *ours }.take_charge() {
            let (mut plain, by) = (charges.into_inner(), rule.clone());
            plain.sort_by_key(|charge| charge.delay);
            plain.dedup();
            self.charges.insert(who, Charged { charge, plain, by });
        }
        Ok(())
    }

    fn spend_in_time(&mut self, call: Call) -> Result<(), TestCaseError> {
        let refused = self.spend(call)?;
        let Some(wait) = refused.retry_after().filter(|_| !refused.is_admitted()) else {
            return Ok(());
        };
        self.clock.set(self.plain.now.saturating_add(wait));
        let again = self.spend(call)?;
        // An entry that is no mark can push nobody out, nor be pushed out; and its first sight may
        // find no room.
        let is_mark = |rule: &A| rule.packed_rule().is_some();
        let all_are_marks = self.rules.iter().all(is_mark);
        let in_vain = !all_are_marks && (again.is_undecided() || !is_mark(&self.rule(call)));
        prop_assert!(
            again.is_admitted() || in_vain,
            "{:?}, then {:?}",
            refused,
            again
        );
        Ok(())
    }

    fn several(&mut self, calls: &[Call]) -> Result<(), TestCaseError> {
        self.read_clock();
        let rules: Vec<A> = calls.iter().map(|call| self.rule(*call)).collect();
        let cost = |call: &Call| Cost::new(call.cost).unwrap();
        let ask = |(call, rule)| {
            let call: &Call = call;
            let policy = &self.policies[call.who.0];
            Ask::new(policy, rule, call.who.1.into(), cost(call))
        };
        let asks: Vec<_> = calls.iter().zip(&rules).map(ask).collect();
        let Check::Ready(Ok(ours)) = self.store.acquire(&asks) else {
            unreachable!("memory answers at once")
        };
        let each = calls.iter().zip(&rules).zip(ours.as_slice());
        if ours.is_admitted() {
            for ((call, rule), ours) in each {
                self.compare(*call, rule, ours)?;
            }
            return Ok(());
        }
        for ((call, rule), ours) in each {
            prop_assert_eq!({ *ours }.take_charge(), None);
            if !self.has_room_for_all() {
                self.plain.refused(call.who, rule, cost(call));
                continue;
            }
            // Who refused tells so; the others tell how they stand.
            let right = if ours.is_admitted() {
                let passes = |theirs: &Decision| theirs.remaining() >= Some(call.cost);
                self.plain.look(call.who, rule, |theirs| {
                    passes(theirs) && facts(theirs) == facts(ours)
                })
            } else {
                self.plain.step(call.who, rule, cost(call), |theirs| {
                    facts(theirs) == facts(ours)
                })
            };
            prop_assert!(right, "{:?} for {:?}", ours, call);
        }
        Ok(())
    }

    fn look(&mut self, call: Call) -> Result<(), TestCaseError> {
        self.read_clock();
        let rule = self.rule(call);
        let (policy, key) = (&self.policies[call.who.0], call.who.1.into());
        let before = self.store.stats();
        let ours = self.store.look(policy, &rule, &key);
        prop_assert_eq!(self.store.stats(), before);
        if self.has_room_for_all() {
            let is_right = |theirs: &Decision| facts(theirs) == facts(&ours);
            let equal = self.plain.look(call.who, &rule, is_right);
            prop_assert!(equal, "{:?} for {:?}", ours, call);
        }
        Ok(())
    }

    fn settle(&mut self, call: Call, late: bool, actual: u64) -> Result<(), TestCaseError> {
        let Some(Charged { charge, plain, by }) = self.charges.remove(&call.who) else {
            return Ok(());
        };
        self.read_clock();
        // By another rule than the one that charged, a store that keeps a word may give back less
        // than one that knows the instant of the last write: that it never gives too much is for
        // the tests at the cap.
        let rule = if late || self.has_room_for_all() {
            by
        } else {
            self.rule(call)
        };
        let settlement = Settlement::new(
            &self.policies[call.who.0],
            &rule,
            call.who.1.into(),
            charge,
            actual,
        )
        .unwrap();
        let cost = settlement.charge().cost;
        let before = self.store.stats();
        let done = matches!(self.store.settle(vec![settlement]), Check::Ready(Ok(())));
        prop_assert!(done);
        let lost = self.store.stats().turned_away > before.turned_away;
        // An entry that finds no room is lost, and counted. The plain map loses only what is to the
        // good of the limit.
        if !lost || actual < cost {
            let may_be_gone = !self.has_room_for_all();
            self.plain
                .settle(call.who, &rule, &plain, actual, may_be_gone);
        }
        if !self.has_room_for_all() && actual < cost {
            // A state that is full by this rule can be forgotten, and what the store has inherited
            // may lie below its full, where the plain map's lies above.
            self.plain.may_be_forgotten_if_full(call.who, &rule);
        }
        Ok(())
    }
}

/// All that an answer says.
fn facts(decision: &Decision) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        decision.verdict(),
        (decision.limit(), decision.remaining(), decision.at()),
        decision.retry_after(),
        (decision.reset_after(), decision.more_after()),
    )
}

/// More lengths than the table has shapes, two rules without a meter, and one key's own.
fn buckets() -> Vec<TokenBucket> {
    vec![
        TokenBucket::per_second(3),
        TokenBucket::per_minute(7).burst(4),
        TokenBucket::per_second(7),
        TokenBucket::per_second(1),
        TokenBucket::per_second(2).burst(3),
        TokenBucket::per_minute(1),
        TokenBucket::per_minute(10).burst(2),
        TokenBucket::per_hour(5),
        TokenBucket::per_day(4),
        TokenBucket::per_second(4).burst(11),
        TokenBucket::per_minute(13).burst(5),
        TokenBucket::per_second(5).burst(7),
        TokenBucket::per_second(5).burst(7).keep_free(3),
    ]
}

/// Rules that start with less than their burst, or with more.
fn other_starts() -> Vec<TokenBucket> {
    vec![
        TokenBucket::per_second(2).burst(4).initial(1),
        TokenBucket::per_minute(20).burst(3).keep_free(1).initial(5),
        TokenBucket::per_second(1)
            .burst(3)
            .initial(0)
            .keep(Duration::from_secs(9)),
    ]
}

/// All of those; but what a key starts with is granted once.
fn all_buckets() -> Vec<TokenBucket> {
    let once = |rule: TokenBucket| rule.keep(Duration::MAX);
    let other_starts = other_starts().into_iter().map(once);
    other_starts.chain(buckets()).collect()
}

fn any_rules() -> Vec<AnyRule> {
    let mut rules: Vec<AnyRule> = buckets().into_iter().map(AnyRule::from).collect();
    let both = [
        "token-bucket 3/1s & token-bucket 9/1m",
        "token-bucket 7/1s burst=2 & token-bucket 5/1m burst=4",
    ];
    for (index, text) in both.into_iter().enumerate() {
        rules.insert(1 + 3 * index, text.parse().unwrap());
    }
    rules
}

fn parsed<R: std::str::FromStr<Err: std::fmt::Debug>>(texts: &[&str]) -> Vec<R> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// With marks.
const QUEUES: [&str; 8] = [
    "leaky-bucket 3/s",
    "leaky-bucket 10/1m queue=5",
    "leaky-bucket 7/1s queue=6",
    "leaky-bucket 1/s queue=0",
    "leaky-bucket 2/s queue=7 max-wait=1500ms",
    "leaky-bucket 30000000/s queue=5",
    "leaky-bucket 20/1m queue=2 max-wait=4s",
    "leaky-bucket 5/1h queue=9",
];

/// With marks, of more lengths than a table has shapes, and without.
const WINDOWS: [&str; 12] = [
    "fixed-window 5/1m",
    "fixed-window 3/1s",
    "fixed-window 9/1m",
    "fixed-window 4/1h",
    "fixed-window 6/1m offset=10s",
    "fixed-window 5/7s",
    "fixed-window 4/1m from=first-call",
    "fixed-window 7/1d offset=1h",
    "fixed-window 5/13s",
    "fixed-window 3/90s",
    "fixed-window 8/1d",
    "fixed-window 5/2m",
];

/// With marks, of one to 15 slices and of as many lengths as a table has shapes or more, and
/// without: slices of unequal lengths, too many slices, and limits that do not fit into the digits
/// of a counter.
const SLIDING: [&str; 14] = [
    "sliding-window 5/1m",
    "sliding-window 9/1m",
    "sliding-window 5/1m slices=4",
    "sliding-window 3/1s",
    "sliding-window 6/1m slices=7",
    "sliding-window 3/1m slices=4",
    "sliding-window 4/1h slices=6",
    "sliding-window 7/1m slices=60",
    "sliding-window 3/1h slices=15",
    "sliding-window 6/20ns",
    "sliding-window 8/1m slices=10",
    "sliding-window 4/7s slices=2",
    "sliding-window 8/1d slices=3",
    "sliding-window 300000/1m",
];

/// Of one length and number of slices, the last one with a limit that does not fit.
const SLIDING_ALIKE: [[&str; 4]; 3] = [
    [
        "sliding-window 5/1m",
        "sliding-window 3/1m",
        "sliding-window 9/1m",
        "sliding-window 300000/1m",
    ],
    [
        "sliding-window 5/1m slices=4",
        "sliding-window 9/1m slices=4",
        "sliding-window 3/1m slices=4",
        "sliding-window 128/1m slices=4",
    ],
    [
        "sliding-window 5/2s slices=2",
        "sliding-window 3/2s slices=2",
        "sliding-window 9/2s slices=2",
        "sliding-window 2000/2s slices=2",
    ],
];

/// Marks of all kinds, of as many shapes as there are.
const MARKS: [&str; 10] = [
    "token-bucket 3/1s",
    "leaky-bucket 2/s queue=3",
    "fixed-window 5/1m",
    "token-bucket 10/1m burst=4",
    "leaky-bucket 10/1m queue=5 max-wait=20s",
    "fixed-window 3/1m",
    "token-bucket 2/1s burst=3",
    "leaky-bucket 1/s queue=0",
    "sliding-window 4/1m",
    "token-bucket 1/1m",
];

/// States of all kinds, of which some are marks.
fn all_kinds() -> Vec<AnyRule> {
    let others = ["token-bucket 3/1s & fixed-window 9/1m"];
    parsed(&[&MARKS[..], &others, &QUEUES, &WINDOWS, &SLIDING].concat())
}

/// Rules of two buckets, whose states are in two words of the table; and some of the same kinds
/// whose states are in the map.
const TWO_BUCKETS: [&str; 10] = [
    "token-bucket 3/1s & token-bucket 9/1m",
    "token-bucket 7/1s burst=2 & token-bucket 5/1m burst=4",
    "cascade 3/1s > 9/1m",
    "cascade 3/1s keep-free=1 > 9/1m keep-free=4",
    "token-bucket 3/1s & token-bucket 9/1m keep-free=4",
    "cascade 5/1m burst=2 > 2/1s burst=3",
    "cascade 2/1s > 1/365d burst=4",
    "three-color 2/1s burst=2 peak=5/1s peak-burst=4",
    "three-color 7/1m burst=3 peak=9/1m peak-burst=5",
    "three-color 1/365d burst=3 peak=5/1s peak-burst=4",
];

fn choices() -> impl Strategy<Value = AtCapacity> {
    prop_oneof![
        3 => Just(AtCapacity::InheritDebts),
        1 => Just(AtCapacity::RefuseNewcomers),
        1 => Just(AtCapacity::AdmitNewcomers),
    ]
}

const START: u64 = 1_767_225_600_000_000_000;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_room_for_all_it_decides_as_a_plain_map(
        ops in ops(steps()), more in 0..20_usize, choice in choices(),
    ) {
        Run::new(buckets(), START, ALL + more, choice).run(ops)?;
    }

    /// All of it in the map.
    #[test]
    fn with_room_for_all_it_decides_as_a_plain_map_whatever_keys_start_with(
        ops in ops(steps()), more in 0..20_usize, choice in choices(),
    ) {
        Run::new(other_starts(), START, ALL + more, choice).run(ops)?;
    }

    #[test]
    fn with_room_for_all_it_decides_as_a_plain_map_under_any_rule(
        ops in ops(steps()), more in 0..20_usize, choice in choices(),
    ) {
        Run::new(any_rules(), START, ALL + more, choice).run(ops)?;
    }

    #[test]
    fn with_room_for_all_it_decides_as_a_plain_map_under_rules_of_two_buckets(
        ops in ops(steps()), more in 0..20_usize, choice in choices(),
    ) {
        Run::<AnyRule>::new(parsed(&TWO_BUCKETS), START, ALL + more, choice).run(ops)?;
    }

    #[test]
    fn at_any_cap_nobody_is_admitted_above_its_limit_under_rules_of_two_buckets(
        ops in ops(steps()), capacity in 0..ALL, choice in choices(),
    ) {
        Run::<AnyRule>::new(parsed(&TWO_BUCKETS), START, capacity, choice).run(ops)?;
    }

    #[test]
    fn at_any_cap_nobody_is_admitted_above_its_limit(
        ops in ops(steps()), capacity in 0..ALL, choice in choices(),
    ) {
        Run::new(all_buckets(), START, capacity, choice).run(ops)?;
    }

    #[test]
    fn at_any_cap_nobody_is_admitted_above_its_limit_under_any_rule(
        ops in ops(steps()), capacity in 0..ALL, choice in choices(),
    ) {
        Run::new(any_rules(), START, capacity, choice).run(ops)?;
    }

    #[test]
    fn at_any_cap_nobody_is_admitted_above_its_limit_under_rules_with_meters(
        ops in ops(steps()), capacity in 0..ALL, choice in choices(),
    ) {
        let rules = buckets().into_iter().filter(|rule| rule.packed_rule().is_some()).collect();
        Run::new(rules, START, capacity, choice).run(ops)?;
    }

    /// The common case: one rule, all of it in the table.
    #[test]
    fn at_any_cap_nobody_is_admitted_above_its_limit_under_one_rule(
        ops in ops(steps()), capacity in 0..ALL, choice in choices(),
    ) {
        Run::new(vec![TokenBucket::per_minute(20).burst(6)], START, capacity, choice).run(ops)?;
    }

    #[test]
    fn queues_with_room_for_all_are_those_of_a_plain_map(
        ops in ops(steps()), more in 0..20_usize, choice in choices(), first in 0..QUEUES.len(),
    ) {
        let mut rules = parsed::<LeakyBucket>(&QUEUES);
        rules.rotate_left(first);
        Run::new(rules, START, ALL + more, choice).run(ops)?;
    }

    #[test]
    fn windows_with_room_for_all_are_those_of_a_plain_map(
        ops in ops(steps()), more in 0..20_usize, choice in choices(), first in 0..WINDOWS.len(),
    ) {
        let mut rules = parsed::<FixedWindow>(&WINDOWS);
        rules.rotate_left(first);
        Run::new(rules, START, ALL + more, choice).run(ops)?;
    }

    #[test]
    fn sliding_windows_with_room_for_all_are_those_of_a_plain_map(
        ops in ops(steps()), more in 0..20_usize, choice in choices(), first in 0..SLIDING.len(),
    ) {
        let mut rules = parsed::<SlidingWindow>(&SLIDING);
        rules.rotate_left(first);
        Run::new(rules, START, ALL + more, choice).run(ops)?;
    }

    #[test]
    fn sliding_windows_of_other_limits_are_those_of_a_plain_map(
        ops in ops(steps()), more in 0..20_usize, choice in choices(),
        alike in prop::sample::select(SLIDING_ALIKE.to_vec()),
    ) {
        Run::new(parsed::<SlidingWindow>(&alike), START, ALL + more, choice).run(ops)?;
    }

    #[test]
    fn states_of_all_kinds_with_room_for_all_are_those_of_a_plain_map(
        ops in ops(steps()), more in 0..20_usize, choice in choices(), first in 0..45_usize,
    ) {
        let mut rules = all_kinds();
        let count = rules.len();
        rules.rotate_left(first % count);
        Run::new(rules, START, ALL + more, choice).run(ops)?;
    }

    #[test]
    fn marks_of_all_kinds_with_room_for_all_are_those_of_a_plain_map(
        ops in ops(steps()), more in 0..20_usize, choice in choices(),
    ) {
        Run::new(parsed::<AnyRule>(&MARKS), START, ALL + more, choice).run(ops)?;
    }

    #[test]
    fn at_any_cap_no_queue_lets_through_more_than_it_may(
        ops in ops(steps()), capacity in 0..ALL, choice in choices(), first in 0..QUEUES.len(),
    ) {
        let mut rules = parsed::<LeakyBucket>(&QUEUES);
        rules.rotate_left(first);
        Run::new(rules, START, capacity, choice).run(ops)?;
    }

    /// Of one length: what was counted in a window of another one is not told from what was in
    /// none.
    #[test]
    fn at_any_cap_no_window_lets_through_more_than_it_may(
        ops in ops(steps()), capacity in 0..ALL, choice in choices(),
    ) {
        let rules = parsed(&["fixed-window 5/1m", "fixed-window 3/1m", "fixed-window 9/1m"]);
        Run::<FixedWindow>::new(rules, START, capacity, choice).run(ops)?;
    }

    /// Of one length and number of slices, as above.
    #[test]
    fn at_any_cap_no_sliding_window_lets_through_more_than_it_may(
        ops in ops(steps()), capacity in 0..ALL, choice in choices(),
        alike in prop::sample::select(SLIDING_ALIKE.to_vec()),
    ) {
        Run::new(parsed::<SlidingWindow>(&alike), START, capacity, choice).run(ops)?;
    }

    #[test]
    fn at_any_cap_nobody_is_admitted_above_its_limit_under_marks_of_all_kinds(
        ops in ops(steps()), capacity in 0..ALL, choice in choices(),
    ) {
        Run::new(parsed::<AnyRule>(&MARKS), START, capacity, choice).run(ops)?;
    }

    /// From the first instant, past the table's scale, to the last.
    #[test]
    fn in_the_course_of_centuries_it_decides_as_a_plain_map(
        start in prop_oneof![
            Just(0), Just(1), Just(START), Just((1 << 63) - 1), Just((1 << 62) / 3), 0..u64::MAX >> 1,
        ],
        ops in ops(prop_oneof![
            4 => 0..10_000_000_000_u64, 1 => 0..2 * YEAR, 1 => 9 * YEAR..12 * YEAR, 1 => 0..100 * YEAR,
        ]),
        capacity in prop_oneof![Just(ALL), 0..ALL],
        choice in choices(),
    ) {
        Run::new(buckets(), start, capacity, choice).run(ops)?;
    }

    #[test]
    fn in_the_course_of_centuries_marks_of_all_kinds_are_those_of_a_plain_map(
        start in prop_oneof![
            Just(0), Just(1), Just(START), Just((1 << 63) - 1), Just((1 << 62) / 3), 0..u64::MAX >> 1,
        ],
        ops in ops(prop_oneof![
            4 => 0..10_000_000_000_u64, 1 => 0..2 * YEAR, 1 => 7 * YEAR..12 * YEAR, 1 => 0..100 * YEAR,
        ]),
        capacity in prop_oneof![Just(ALL), 0..ALL],
        choice in choices(),
    ) {
        Run::new(parsed::<AnyRule>(&MARKS), start, capacity, choice).run(ops)?;
    }
}
