//! Cancelled calls, compared with a list of all queue positions in the order of their departures.

use std::{rc::Rc, time::Duration};

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use proptest::prelude::*;
use tollgate::{
    Charge, Cost, LeakyBucket, TokenBucket,
    algorithm::{Algorithm, Codec},
};

use support::rational::{self, whole};

use super::{SECOND, at, bucket, delay, step};

type LeakyBucketState = <LeakyBucket as Algorithm>::State;

const BEGIN: u64 = 1_800_000_000 * SECOND;

fn interval(rule: &LeakyBucket) -> BigRational {
    let quota = rule.quota();
    rational::interval(quota.amount(), quota.period_nanos(), rule.capacity())
}

/// A position in the queue: the interval that starts at its departure.
#[derive(Clone, Debug)]
struct Position {
    begin: BigRational,
    span: BigRational,
    freed: bool,
    /// `None` for a forced charge.
    charge: Option<Rc<Charge>>,
}

impl Position {
    fn departs(&self) -> u64 {
        self.begin.ceil().to_integer().to_u64().unwrap()
    }
}

/// All positions that were given out and are not free again.
#[derive(Clone, Debug)]
struct Queue {
    interval: BigRational,
    positions: Vec<Position>,
}

impl Queue {
    fn next(&self, now: u64) -> BigRational {
        let end = self
            .positions
            .last()
            .map(|position| &position.begin + &position.span);
        end.unwrap_or_else(BigRational::zero).max(whole(now))
    }

    fn push(&mut self, now: u64, units: u64, charge: Option<Rc<Charge>>) {
        self.positions.push(Position {
            begin: self.next(now),
            span: whole(units) * &self.interval,
            freed: false,
            charge,
        });
    }

    fn settle(&mut self, charge: &Charge, now: u64, actual: u64) {
        if actual > charge.cost {
            return self.push(now, actual - charge.cost, None);
        }
        let Some(index) = self
            .positions
            .iter()
            .position(|position| position.charge.as_deref() == Some(charge))
        else {
            return;
        };
        let is_last = index + 1 == self.positions.len();
        let position = &mut self.positions[index];
        if actual > 0 && is_last {
            position.span = whole(actual) * &self.interval;
        } else if actual == 0 && (is_last || position.departs() > now) {
            position.freed = true;
        }
        while self.positions.last().is_some_and(|position| position.freed) {
            self.positions.pop();
        }
    }

    /// Returns the positions of calls that wait or have departed, without refunded ones.
    fn occupied(&self) -> impl Iterator<Item = &Position> {
        self.positions.iter().filter(|position| !position.freed)
    }
}

#[derive(Clone, Debug)]
enum Op {
    Arrive(u64),
    /// Cancels a waiting call.
    Cancel(prop::sample::Index),
    /// Settles any unsettled call.
    Settle(prop::sample::Index, u64),
    Advance(u64),
    Back(u64),
    Rule(prop::sample::Index),
}

/// Generates mostly arrivals and cancellations, a few tenths of a second apart.
fn ops(chaos: bool) -> impl Strategy<Value = Vec<Op>> {
    let index = any::<prop::sample::Index>;
    let gap = prop_oneof![
        4 => 0..300_000_000_u64,
        1 => (1..5_u64).prop_map(|tenths| tenths * SECOND / 10),
        1 => 0..5 * SECOND,
    ];
    let op = prop_oneof![
        8 => prop_oneof![3 => Just(1), 1 => 1..5_u64].prop_map(Op::Arrive),
        5 => index().prop_map(Op::Cancel),
        2 => (index(), 0..7_u64).prop_map(|(call, actual)| Op::Settle(call, actual)),
        3 => gap.prop_map(Op::Advance),
        u32::from(chaos) => (0..SECOND).prop_map(Op::Back),
        u32::from(chaos) => index().prop_map(Op::Rule),
    ];
    prop::collection::vec(op, 1..80)
}

fn rules() -> [LeakyBucket; 6] {
    [
        "10/s queue=8",
        "3/1s queue=12",
        "7/1s queue=10",
        "999/100s queue=6 max-wait=400ms",
        "30000000/s queue=20",
        "10/s queue=5 max-wait=300ms",
    ]
    .map(bucket)
}

fn look(
    rule: &LeakyBucket,
    state: &Option<LeakyBucketState>,
    now: u64,
) -> impl PartialEq + std::fmt::Debug + use<> {
    let look = rule.look(state.as_ref(), at(now));
    (
        look.verdict(),
        look.remaining(),
        look.retry_after(),
        look.reset_after(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(support::cases(if cfg!(debug_assertions) { 600 } else { 20_000 }) as u32))]

    /// Every departure equals that of the list, for any settlements of the calls before it.
    #[test]
    fn equals_the_list(rule in prop::sample::select(rules().to_vec()), ops in ops(false)) {
        let mut queue = Queue { interval: interval(&rule), positions: Vec::new() };
        let (mut now, mut state, mut unsettled) = (BEGIN, None, Vec::<Rc<Charge>>::new());
        for op in ops {
            let settled = match op {
                Op::Arrive(cost) => {
                    let begin = queue.next(now);
                    let decision = step(&rule, &mut state, now, cost);
                    if let Some(delay) = delay(&decision) {
                        prop_assert_eq!(whole(now + delay), begin.ceil());
                        let charge = Rc::new({ decision }.take_charge().unwrap());
                        queue.push(now, cost, Some(Rc::clone(&charge)));
                        unsettled.push(charge);
                    }
                    None
                }
                Op::Cancel(call) => {
                    let waits = |charge: &Rc<Charge>| charge.at.saturating_add(charge.delay.unwrap()) > at(now);
                    let waiting: Vec<_> = unsettled.iter().filter(|charge| waits(charge)).cloned().collect();
                    (!waiting.is_empty()).then(|| (call.get(&waiting).clone(), 0))
                }
                Op::Settle(call, actual) => (!unsettled.is_empty()).then(|| (call.get(&unsettled).clone(), actual)),
                Op::Advance(nanos) => {
                    now += nanos;
                    None
                }
                Op::Back(_) | Op::Rule(_) => None,
            };
            if let Some((charge, actual)) = settled {
                unsettled.retain(|other| *other != charge);
                rule.settle(&mut state, &charge, at(now), actual);
                queue.settle(&charge, now, actual);
                if actual < charge.cost {
                    // A second settlement changes nothing.
                    let once = look(&rule, &state, now);
                    rule.settle(&mut state, &charge, at(now), actual);
                    prop_assert_eq!(once, look(&rule, &state, now));
                }
            }
            prop_assert_eq!(&Option::<LeakyBucketState>::from_bytes(&state.to_bytes()).unwrap(), &state);
            let backlog = (queue.next(now) - whole(now)).ceil().to_integer();
            let ours = rule.look(state.as_ref(), at(now)).reset_after();
            prop_assert_eq!(BigInt::from(ours.as_nanos()), backlog);
            // Departures are at least an interval apart, in the order of arrival.
            let occupied: Vec<_> = queue.occupied().collect();
            for pair in occupied.windows(2) {
                prop_assert!(&pair[1].begin - &pair[0].begin >= queue.interval);
            }
        }
    }

    /// No call departs before an earlier one that was not cancelled, or less than its intervals
    /// after it. This holds also if clocks step back and rules change.
    #[test]
    fn no_call_departs_before_an_earlier_one(first in 0..6_usize, ops in ops(true)) {
        let mut rules = rules();
        rules.rotate_left(first);
        let (mut rule, mut now, mut written, mut state) = (rules[0], BEGIN, 0, None);
        // The rule, the charge, and the departure on a clock that stands still instead of stepping
        // back.
        let mut unsettled: Vec<(LeakyBucket, Charge, u64)> = Vec::new();
        let mut settled = Vec::new();
        for op in ops {
            match op {
                Op::Arrive(cost) => {
                    let decision = step(&rule, &mut state, now, cost);
                    let Some(delay) = delay(&decision) else { continue };
                    written = now.max(written);
                    let departs = written + delay;
                    for (rule, charge, earlier) in unsettled.iter().chain(&settled) {
                        // Both departures are rounded up.
                        let apart = whole(charge.cost) * interval(rule) - whole(1);
                        prop_assert!(whole(departs) > whole(*earlier) + apart);
                    }
                    unsettled.push((rule, { decision }.take_charge().unwrap(), departs));
                }
                Op::Cancel(_) | Op::Settle(..) if unsettled.is_empty() => {}
                Op::Cancel(call) => {
                    let (rule, charge, _) = unsettled.remove(call.index(unsettled.len()));
                    rule.settle(&mut state, &charge, at(now), 0);
                }
                Op::Settle(call, more) => {
                    let (rule, charge, departs) = unsettled.remove(call.index(unsettled.len()));
                    rule.settle(&mut state, &charge, at(now), charge.cost + more);
                    if more > 0 {
                        written = now.max(written);
                    }
                    settled.push((rule, charge, departs));
                }
                Op::Advance(nanos) => now += nanos,
                Op::Back(nanos) => now -= nanos,
                Op::Rule(index) => rule = *index.get(&rules),
            }
        }
    }

    /// After the cancellation of all waiting calls, in any order and at any time, the queue is as
    /// before their arrival.
    #[test]
    fn a_queue_whose_waiting_calls_are_all_cancelled_is_idle(
        rule in prop::sample::select(["10/s queue=50", "7/1s queue=60", "3/1s queue=60", "600/7m queue=50"].to_vec()),
        costs in prop::collection::vec(1..4_u64, 1..13),
        order in Just((0..13_usize).collect::<Vec<_>>()).prop_shuffle(),
        gaps in prop::collection::vec(prop_oneof![2 => Just(0), 1 => 0..20_000_000_u64], 26),
    ) {
        let (rule, mut state, mut now) = (bucket(rule), None, BEGIN);
        step(&rule, &mut state, now, 1);
        let mut alone = state.clone();
        let charges: Vec<_> = costs.iter().zip(&gaps).map(|(cost, gap)| {
            let decision = step(&rule, &mut state, now, *cost);
            now += gap;
            { decision }.take_charge().unwrap()
        }).collect();
        for (call, gap) in order.iter().zip(&gaps[13..]) {
            let Some(charge) = charges.get(*call) else { continue };
            let departs = charge.at.saturating_add(charge.delay.unwrap());
            if departs > at(now) {
                rule.settle(&mut state, charge, at(now), 0);
                now += gap;
            } else {
                // It is too late to cancel this call.
                return Ok(());
            }
        }
        prop_assert_eq!(look(&rule, &state, now), look(&rule, &alone, now));
        let next = step(&rule, &mut state, now, 1);
        prop_assert_eq!(delay(&next), delay(&step(&rule, &mut alone, now, 1)));
    }
}

/// Clients that hang up, in any order: the state stays small, and the limit holds. In order and
/// backwards, the queue is idle at the end.
#[test]
fn two_thousand_waiting_calls_that_are_cancelled_leave_a_small_state() {
    const WAITING: usize = 2000;
    let rule = bucket("10/s queue=2000");
    let mut random = support::Random::new(7);
    let in_order: Vec<usize> = (1..=WAITING).collect();
    let backwards: Vec<usize> = in_order.iter().rev().copied().collect();
    let every_other = |from: usize| (from..=WAITING).step_by(2);
    let others: Vec<usize> = every_other(1).chain(every_other(2)).collect();
    let mut shuffled = in_order.clone();
    for n in (1..WAITING).rev() {
        shuffled.swap(n, random.below(n as u64 + 1) as usize);
    }
    for (order, is_idle) in [
        (in_order, true),
        (backwards, true),
        (others, false),
        (shuffled, false),
    ] {
        let mut state = None;
        let mut calls: Vec<_> = (0..=WAITING)
            .map(|_| step(&rule, &mut state, BEGIN, 1))
            .collect();
        let mut most = 0;
        for call in order {
            let charge = calls[call].take_charge().unwrap();
            rule.settle(&mut state, &charge, at(BEGIN), 0);
            most = most.max(state.to_bytes().len());
        }
        // 16 places of at most 20 bytes.
        assert!(most < 360, "{most} bytes");
        let next = delay(&step(&rule, &mut state, BEGIN, 1)).expect("a place");
        assert!((SECOND / 10..=2000 * SECOND / 10).contains(&next), "{next}");
        assert_eq!(next == SECOND / 10, is_idle, "{next}");
    }
}

/// A position in the middle is not given out again while another call waits after it. It is free
/// once none does.
#[test]
fn a_cancelled_position_in_the_middle_is_freed_when_it_is_the_last() {
    let (rule, mut state) = (bucket("10/s queue=3"), None);
    let mut calls: Vec<_> = (0..4).map(|_| step(&rule, &mut state, BEGIN, 1)).collect();
    let mut charge = |call: usize| calls[call].take_charge().unwrap();
    let next = |state: &Option<LeakyBucketState>| delay(&step(&rule, &mut state.clone(), BEGIN, 1));
    rule.settle(&mut state, &charge(1), at(BEGIN), 0);
    rule.settle(&mut state, &charge(2), at(BEGIN), 0);
    assert_eq!(next(&state), None, "the fourth call still departs last");
    rule.settle(&mut state, &charge(3), at(BEGIN), 0);
    assert_eq!(next(&state), Some(SECOND / 10));
}

/// A cancelled position whose time has passed delays no later call, in any order of cancellations.
#[test]
fn a_cancelled_position_in_the_past_delays_no_call() {
    let (rule, mut state) = (bucket("10/s queue=3"), None);
    let mut calls: Vec<_> = (0..3).map(|_| step(&rule, &mut state, BEGIN, 1)).collect();
    let mut charge = |call: usize| calls[call].take_charge().unwrap();
    rule.settle(&mut state, &charge(1), at(BEGIN), 0);
    let now = BEGIN + SECOND / 10 + 1;
    rule.settle(&mut state, &charge(2), at(now), 0);
    assert_eq!(delay(&step(&rule, &mut state, now, 1)), Some(0));
}

/// Also after its departure, the last call is corrected as if it had had the actual cost, less the
/// time that has passed.
#[test]
fn the_last_call_is_corrected_at_its_departure() {
    let rule = bucket("10/s queue=9");
    for (actual, after, backlog) in [
        (2, 0, 2),
        (0, 0, 0),
        (2, 1, 1),
        (1, 3, 0),
        (7, 0, 7),
        (7, 2, 5),
    ] {
        let mut state = None;
        let charge = step(&rule, &mut state, BEGIN, 5).take_charge().unwrap();
        let now = BEGIN + after * SECOND / 10;
        rule.settle(&mut state, &charge, at(now), actual);
        let reset = rule.look(state.as_ref(), at(now)).reset_after();
        assert_eq!(
            reset.as_nanos() as u64,
            backlog * SECOND / 10,
            "{actual} after {after}"
        );
    }
}

#[test]
fn a_forced_charge_starts_now_if_the_queue_is_idle() {
    let (rule, mut state) = (bucket("10/s queue=3"), None);
    let charge = step(&rule, &mut state, BEGIN, 1).take_charge().unwrap();
    let now = BEGIN + 10 * SECOND;
    for mut state in [state, None] {
        rule.settle(&mut state, &charge, at(now), 8);
        let refused = step(&rule, &mut state, now, 1);
        assert_eq!(refused.remaining(), Some(0));
        assert_eq!(refused.retry_after(), Some(Duration::from_millis(400)));
        assert_eq!(refused.reset_after(), Duration::from_millis(700));
    }
}

/// In a pair of rules the departure is not stored. A call is refunded only if it certainly departs
/// last.
#[test]
fn in_a_pair_only_a_call_alone_at_its_instant_is_refunded() {
    let rule = (bucket("10/s queue=3"), TokenBucket::per_second(100));
    let backlog = |state: &<(LeakyBucket, TokenBucket) as Algorithm>::State| {
        let look = rule.0.look(state.0.as_ref(), at(BEGIN + 5));
        look.reset_after().as_nanos() as u64 + 5
    };
    let mut state = None;
    let first = rule.step(&mut state, at(BEGIN), Cost::ONE).decision();
    let second = rule.step(&mut state, at(BEGIN + 5), Cost::ONE).decision();

    let mut settled = state;
    rule.settle(
        &mut settled,
        &{ first }.take_charge().unwrap(),
        at(BEGIN + 5),
        0,
    );
    assert_eq!(
        backlog(&settled.unwrap()),
        SECOND / 5,
        "the second call waits after it"
    );
    let mut settled = state_of(&rule, &[0, 5]);
    for _ in 0..2 {
        rule.settle(
            &mut settled,
            &{ second }.take_charge().unwrap(),
            at(BEGIN + 5),
            0,
        );
        assert_eq!(backlog(settled.as_ref().unwrap()), SECOND / 10, "once");
    }
    let mut settled = state_of(&rule, &[0, 5, 5]);
    rule.settle(
        &mut settled,
        &{ second }.take_charge().unwrap(),
        at(BEGIN + 5),
        0,
    );
    assert_eq!(backlog(&settled.unwrap()), 3 * SECOND / 10, "one of two");
}

fn state_of<A: Algorithm>(rule: &A, calls: &[u64]) -> Option<A::State> {
    let mut state = None;
    for call in calls {
        assert!(step(rule, &mut state, BEGIN + call, 1).is_admitted());
    }
    state
}

/// The state stays bounded while a million cancelled calls leave gaps that no call can use.
#[test]
fn the_state_size_is_bounded_by_the_queue() {
    let (rule, mut state, mut now) = (bucket("10/s queue=20"), None, BEGIN);
    let mut longest = 0;
    for _ in 0..20_000 {
        let charges: Vec<_> = (0..2)
            .filter_map(|_| step(&rule, &mut state, now, 1).take_charge())
            .collect();
        if let [first, _] = &charges[..] {
            rule.settle(&mut state, first, at(now), 0);
        }
        longest = longest.max(state.as_ref().unwrap().to_bytes().len());
        now += SECOND / 8;
    }
    // A refunded position takes up to 9 + 6 bytes, the rest of the state up to 25.
    assert!(longest > 25 && longest < 25 + 21 * 15, "{longest}");
    // Of charges that were never made, those within the place of another are not remembered.
    for never_charged in 0..1_000 {
        let delay = Some(Duration::from_nanos(never_charged * 1_000_003));
        let charge = Charge::new(at(now), 1).with_delay(delay);
        rule.settle(&mut state, &charge, at(now), 0);
    }
    let length = |state: &Option<LeakyBucketState>| state.to_bytes().len();
    assert!((25 + 5 * 10..25 + 21 * 15).contains(&length(&state)));
    step(&rule, &mut state, now + 10 * SECOND, 1);
    assert!(length(&state) <= 25, "an idle queue remembers nothing");
}
