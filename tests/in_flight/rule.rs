//! The rule against a model that keeps every charge by itself.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{
    AnyRule, Charge, Cost, InFlight, Timestamp, Verdict,
    algorithm::{Algorithm, Codec, StateKind},
};

use super::cost;

type State = <InFlight as Algorithm>::State;

/// A charge that is not settled, with the instant at which its maximal hold is over.
struct Open {
    charge: Charge,
    rule: InFlight,
    over_at: Option<u128>,
}

#[derive(Clone, Debug)]
enum Act {
    Spend {
        rule: usize,
        cost: u64,
    },
    Settle {
        which: prop::sample::Index,
        actual: u64,
    },
    /// Moves a charge to an instant so long ago.
    Renew {
        which: prop::sample::Index,
        ago: u64,
    },
    Wait(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (0..4_usize, 1..4_u64).prop_map(|(rule, cost)| Act::Spend { rule, cost }),
        3 => (any::<prop::sample::Index>(), prop_oneof![4 => Just(0), 1 => 0..6_u64])
            .prop_map(|(which, actual)| Act::Settle { which, actual }),
        2 => (any::<prop::sample::Index>(), prop_oneof![3 => Just(0), 1 => 0..3_000_u64])
            .prop_map(|(which, ago)| Act::Renew { which, ago }),
        2 => prop_oneof![0..20_u64, 0..2_000_u64].prop_map(Act::Wait),
    ];
    prop::collection::vec(act, 1..120)
}

/// Two limits, each with or without a maximal hold, the longer one of which is no multiple of 16.
fn rules(hold: u64) -> [InFlight; 4] {
    let hold = Duration::from_nanos(hold);
    [
        InFlight::at_most(5),
        InFlight::at_most(9),
        InFlight::at_most(5).max_hold(hold),
        InFlight::at_most(7).max_hold(hold * 3),
    ]
}

/// The first multiple of a sixteenth of the hold, at least one nanosecond, that is not before it
/// has passed.
fn over_at(at: Timestamp, hold: Option<u64>) -> Option<u128> {
    let hold = u128::from(hold?);
    let sixteenth = (hold / 16).max(1);
    let end = u128::from(at.as_nanos()) + hold;
    Some(end.div_ceil(sixteenth) * sixteenth)
}

proptest! {
    #[test]
    fn holds_what_a_list_of_charges_holds(acts in acts(), hold in 1..1_000_u64) {
        let rules = rules(hold);
        let holds = [None, None, Some(hold), Some(hold * 3)];
        let limits = [5, 9, 5, 7];
        let mut state: Option<State> = None;
        let mut open: Vec<Open> = Vec::new();
        // Units that were charged beyond the cost, without a charge of their own.
        let mut extra: Vec<(u64, Option<u128>)> = Vec::new();
        let mut nanos = 1_000_000_u64;
        for act in acts {
            let now = Timestamp::from_nanos(nanos);
            let lasts = |over_at: &Option<u128>| over_at.is_none_or(|end| u128::from(nanos) < end);
            let held = |open: &[Open], extra: &[(u64, Option<u128>)]| {
                let open = open.iter().filter(|open| lasts(&open.over_at));
                let extra = extra.iter().filter(|(_, over_at)| lasts(over_at));
                open.map(|open| open.charge.cost).sum::<u64>()
                    + extra.map(|(units, _)| units).sum::<u64>()
            };
            match act {
                Act::Wait(more) => nanos += more,
                Act::Spend { rule: n, cost: units } => {
                    let (rule, before) = (&rules[n], held(&open, &extra));
                    let admits = before + units <= limits[n];
                    let mut decision = rule.step(&mut state, now, cost(units)).decision();
                    prop_assert_eq!(decision.is_admitted(), admits);
                    let after = if admits { before + units } else { before };
                    prop_assert_eq!(decision.remaining(), Some(limits[n].saturating_sub(after)));
                    prop_assert!(decision.is_in_flight());
                    match decision.take_charge() {
                        Some(charge) => {
                            prop_assert!(admits);
                            let over_at = over_at(now, holds[n]);
                            open.push(Open { charge, rule: *rule, over_at });
                        }
                        None => prop_assert!(!admits),
                    }
                }
                Act::Settle { which, actual } => {
                    if open.is_empty() {
                        continue;
                    }
                    let Open { charge, rule, over_at } = open.swap_remove(which.index(open.len()));
                    let is_over = !lasts(&over_at);
                    let forgets = rule.forgets(state.as_ref(), &charge, now, actual);
                    prop_assert_eq!(forgets, is_over && actual < charge.cost);
                    rule.settle(&mut state, &charge, now, actual);
                    if !is_over {
                        extra.push((actual, over_at));
                    }
                }
                Act::Renew { which, ago } => {
                    if open.is_empty() {
                        continue;
                    }
                    let n = which.index(open.len());
                    let charge = &mut open[n];
                    let Some(delay) = nanos.saturating_sub(ago).checked_sub(charge.charge.at.as_nanos()).filter(|delay| *delay > 0) else {
                        continue;
                    };
                    let delay = Duration::from_nanos(delay);
                    let Charge { at, cost, .. } = charge.charge;
                    let moved = Charge::new(at, cost).with_delay(Some(delay));
                    let forgets = charge.rule.forgets(state.as_ref(), &moved, now, cost);
                    prop_assert_eq!(forgets, !lasts(&charge.over_at));
                    charge.rule.settle(&mut state, &moved, now, cost);
                    charge.charge = Charge::new(at.saturating_add(delay), cost);
                    let n = rules.iter().position(|rule| *rule == charge.rule).unwrap();
                    charge.over_at = over_at(charge.charge.at, holds[n]);
                    if !lasts(&charge.over_at) {
                        // An instant that is too long ago counts as now, and nobody knows it.
                        extra.push((cost, over_at(now, holds[n])));
                    }
                }
            }
            let now = Timestamp::from_nanos(nanos);
            let lasts = |over_at: &Option<u128>| over_at.is_none_or(|end| u128::from(nanos) < end);
            let all: u64 = open.iter().filter(|open| lasts(&open.over_at)).map(|open| open.charge.cost).sum::<u64>()
                + extra.iter().filter(|(_, over_at)| lasts(over_at)).map(|(units, _)| units).sum::<u64>();
            for (rule, limit) in rules.iter().zip(limits) {
                let look = rule.look(state.as_ref(), now);
                prop_assert_eq!(look.remaining(), Some(limit.saturating_sub(all)));
                prop_assert_eq!(look.is_admitted(), all < limit);
                let unused = state.as_ref().is_none_or(|state| rule.forgettable_at(state) <= now);
                prop_assert_eq!(unused, all == 0);
            }
            if let Some(known) = &state {
                prop_assert_eq!(&State::from_bytes(&known.to_bytes()).unwrap(), known);
            }
        }
    }

    #[test]
    fn text_is_exact(
        units in 1..=1_u64 << 40,
        hold in prop::option::of(1..=u64::MAX >> 1),
        lease in prop::option::of(100_000..=86_400_000_000_u64),
        wait in prop::option::of(any::<u64>()),
        turn in prop::option::of(1..=u64::MAX >> 1),
    ) {
        let mut rule = InFlight::at_most(units);
        if let Some(lease) = lease {
            rule = rule.lease(Duration::from_micros(lease));
        }
        if let Some(hold) = hold {
            rule = rule.max_hold(Duration::from_nanos(hold));
        }
        if let Some(wait) = wait {
            rule = rule.retry_after(Duration::from_nanos(wait));
        }
        if let Some(turn) = turn {
            rule = rule.wait_at_most(Duration::from_nanos(turn));
        }
        prop_assert_eq!(rule.to_string().parse::<InFlight>().unwrap(), rule);
        prop_assert_eq!(rule.to_string().parse::<AnyRule>().unwrap(), AnyRule::from(rule));
    }

    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = State::from_bytes(&bytes);
        let tagged: Vec<u8> = [0x61].into_iter().chain(bytes).collect();
        if let Ok(state) = State::from_bytes(&tagged) {
            prop_assert_eq!(State::from_bytes(&state.to_bytes()).unwrap(), state);
        }
    }
}

#[test]
fn a_key_has_few_spans_whatever_the_limit() {
    let rule = InFlight::at_most(1 << 40).max_hold(Duration::from_secs(60));
    let mut state = None;
    let mut most = 0;
    for nanos in (0..300_000_000_000_u64).step_by(100_000_000) {
        rule.step(&mut state, Timestamp::from_nanos(nanos), Cost::ONE);
        most = most.max(state.as_ref().map_or(0, |state| state.to_bytes().len()));
    }
    // 18 spans: an instant of up to 10 bytes, and a count of 2.
    assert!((100..=2 + 18 * 12).contains(&most), "{most}");
}

#[test]
fn waits_are_a_guess_that_spreads() {
    let rule = InFlight::at_most(1);
    let mut state = None;
    rule.step(&mut state, Timestamp::default(), Cost::ONE);
    let waits: Vec<Duration> = (0..10_000_u64)
        .map(|n| {
            let now = Timestamp::from_nanos(n * 1_000);
            let refused = rule.step(&mut state, now, Cost::ONE).decision();
            assert_eq!(refused.verdict(), Verdict::Refuse);
            refused.retry_after().unwrap()
        })
        .collect();
    let within = |from, to| {
        let range = Duration::from_millis(from)..Duration::from_millis(to);
        waits.iter().filter(|wait| range.contains(wait)).count()
    };
    for n in 0..10 {
        let tenth = within(500 + n * 100, 600 + n * 100);
        assert!((900..1_100).contains(&tenth), "{n}: {tenth}");
    }
    let set = rule.retry_after(Duration::from_secs(7));
    let refused = set.look(state.as_ref(), Timestamp::default());
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(7)));
    let oversized = rule
        .step(&mut state, Timestamp::default(), cost(2))
        .decision();
    assert!(oversized.is_oversized() && oversized.retry_after().is_none());
}

#[test]
fn names_stay_as_they_are() {
    let rule = InFlight::at_most(8);
    assert_eq!(rule.state_kind(), StateKind::named("in-flight"));
    let mut state = None;
    rule.step(&mut state, Timestamp::default(), cost(3));
    // The tag, one span, the last instant, three units.
    let mut bytes = vec![0x61, 1, 0xfe];
    bytes.extend([0xff; 8]);
    bytes.extend([0x01, 3]);
    assert_eq!(state.unwrap().to_bytes(), bytes);
}

#[test]
fn wrong_texts_say_what_is_wrong() {
    for (text, column, words) in [
        (
            "in-flight",
            10,
            "ends too early: expected a number of units",
        ),
        (
            "in-flight 0",
            11,
            "a limit of 0 in flight: expected 1 to 2^40",
        ),
        ("in-flight 10/1s", 11, "`10/1s` where a number of units"),
        ("in-flight 8 max-hold=0s", 22, "a maximal hold of 0ns"),
        (
            "in-flight 8 lease=0s",
            19,
            "a lease of 0ns: expected 100 ms",
        ),
        ("in-flight 8 lease=99ms", 19, "a lease of 99ms"),
        ("in-flight 8 lease=25h", 19, "a lease of 90000s"),
        ("in-flight 8 lease=100000001ns", 19, "in whole microseconds"),
        ("in-flight 8 wait-at-most=0s", 26, "a wait of at most 0ns"),
        ("in-flight 8 hold=5m", 13, "unknown setting `hold`"),
        (
            "token-bucket 9/1s & in-flight 8",
            20,
            "add it to the layer by `.also(…)`",
        ),
        ("in-flight 8 & in-flight 9", 1, "a limit of their own"),
    ] {
        let error = text.parse::<AnyRule>().unwrap_err();
        assert!(error.to_string().contains(words), "{text}: {error}");
        assert_eq!(error.column(), Some(column), "{text}: {error}");
    }
}
