//! The laws of [`Algorithm`] and the definitions of a [`Decision`]'s numbers. They hold for every
//! rule, on adversarial timelines.

use std::{fmt::Debug, time::Duration};

use proptest::prelude::*;
use tollgate::{
    Cost, Decision, Timestamp, Verdict,
    algorithm::{Algorithm, Codec, Step},
};

/// An event on the timeline of one key.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Spend(u64),
    /// Spends the remaining units, or one more.
    SpendRest {
        and_more: bool,
    },
    Advance(u64),
    /// To the instant when the last refused call can pass, or a nanosecond before.
    ToRetry {
        early: bool,
    },
    /// To the instant when the state can be forgotten, or a nanosecond before.
    ToReset {
        early: bool,
    },
    StepBack(u64),
    /// Settles the last admitted charge.
    Settle(u64),
    /// Switches to another rule.
    Change(usize),
}

/// Generates timelines around a scale of time in nanoseconds (a period, a slice) and costs around a
/// capacity.
pub(crate) fn ops(scale: u64, capacity: u64) -> impl Strategy<Value = Vec<Op>> {
    let near = move |most: u64| {
        prop_oneof![
            4 => 0..=most.max(1),
            2 => Just(most),
            1 => Just(most.saturating_sub(1)),
            1 => Just(most.saturating_add(1)),
            1 => Just(0),
        ]
    };
    let cost = prop_oneof![
        4 => Just(1),
        3 => 1..=capacity.max(2) / 2 + 1,
        1 => Just(capacity),
        1 => Just(capacity.saturating_add(1)),
        1 => Just(1 << 40),
        1 => Just(u64::MAX),
    ];
    let op = prop_oneof![
        8 => cost.prop_map(Op::Spend),
        1 => any::<bool>().prop_map(|and_more| Op::SpendRest { and_more }),
        3 => near(scale).prop_map(Op::Advance),
        2 => near(scale / capacity.max(1)).prop_map(Op::Advance),
        1 => near(scale.saturating_mul(3)).prop_map(Op::Advance),
        1 => prop::sample::select(vec![1_u64 << 50, 1 << 58, 1 << 62]).prop_map(Op::Advance),
        1 => any::<bool>().prop_map(|early| Op::ToRetry { early }),
        1 => any::<bool>().prop_map(|early| Op::ToReset { early }),
        1 => near(scale).prop_map(Op::StepBack),
        1 => prop_oneof![Just(0), Just(1), 0..=capacity, Just(capacity.saturating_mul(2))].prop_map(Op::Settle),
        1 => (0..8_usize).prop_map(Op::Change),
    ];
    prop::collection::vec(op, 1..40)
}

/// Generates start times: the epoch, an instant in 2026 at which no window starts, and one near the
/// end of time.
pub(crate) fn beginnings() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        1 => Just(0),
        4 => Just(1_767_235_685_123_456_789),
        1 => Just((1 << 63) - 1 - 86_400_000_000_000),
    ]
    .prop_map(Timestamp::from_nanos)
}

/// The laws that a rule obeys.
#[derive(Clone, Copy)]
pub(crate) struct Keeps {
    /// A key without a state equals a key whose debt is repaid. So a refusal never writes.
    pub(crate) starts_at_rest: bool,
    /// The remaining units never shrink while the key is idle. (Those of a warm-up do, as it
    /// cools.) If `false`, only clock steps back to the last write are checked.
    pub(crate) never_shrinks: bool,
    /// The first call under another rule writes, even if it is refused, because it decides which
    /// window the count belongs to. The test makes such a call after each change. If `false`, a
    /// refusal never writes.
    pub(crate) carries_over: bool,
}

impl Keeps {
    pub(crate) const ALL: Self = Self {
        starts_at_rest: true,
        never_shrinks: true,
        carries_over: false,
    };
}

/// Returns the part of a decision that clients act upon.
fn client_view(decision: &Decision) -> impl PartialEq + Debug + use<> {
    (
        decision.verdict(),
        decision.remaining(),
        decision.retry_after(),
        decision.class(),
    )
}

fn later(now: Timestamp, wait: Duration) -> Option<Timestamp> {
    let nanos = u64::try_from(wait.as_nanos()).ok()?;
    let at = now.as_nanos().checked_add(nanos)?;
    (at < 1 << 63).then(|| Timestamp::from_nanos(at))
}

fn before(now: Timestamp) -> Timestamp {
    Timestamp::from_nanos(now.as_nanos().saturating_sub(1))
}

fn spend<A: Algorithm>(rule: &A, state: &Option<A::State>, at: Timestamp, cost: u64) -> Decision {
    let cost = Cost::new(cost).unwrap();
    rule.step(&mut state.clone(), at, cost).decision()
}

fn bytes<S: Codec>(state: &Option<S>) -> Vec<u8> {
    state.to_bytes()
}

/// Runs the timeline under the rules. Panics if a law is broken.
pub(crate) fn hold<A>(rules: &[A], keeps: Keeps, begin: Timestamp, ops: &[Op])
where
    A: Algorithm,
    A::State: Codec + Debug,
{
    let mut rule = &rules[0];
    let mut now = begin;
    let mut state: Option<A::State> = None;
    let mut last_charge = None;
    let mut retry = None;
    let mut newest = now;
    let mut written = None;
    for op in ops {
        let cost = match *op {
            Op::Spend(cost) => Some(cost),
            Op::SpendRest { and_more } => {
                let rest = rule.look(state.as_ref(), now).remaining().unwrap();
                Some(rest.saturating_add(u64::from(and_more)))
            }
            Op::Advance(nanos) => {
                now = later(now, Duration::from_nanos(nanos)).unwrap_or(now);
                None
            }
            Op::ToRetry { early } => {
                let at = retry.unwrap_or(now);
                now = if early { before(at) } else { at };
                None
            }
            Op::ToReset { early } => {
                let wait = rule.look(state.as_ref(), now).reset_after();
                let at = later(now, wait).unwrap_or(now);
                now = if early { before(at) } else { at };
                None
            }
            Op::StepBack(nanos) => {
                let mut ahead = rule.look(state.as_ref(), now);
                let nanos = now.as_nanos().saturating_sub(nanos);
                now = Timestamp::from_nanos(nanos);
                let behind = rule.look(state.as_ref(), now);
                if !keeps.never_shrinks {
                    // Time is clamped to the last write.
                    ahead = rule.look(state.as_ref(), Some(now).max(written).unwrap_or(now));
                }
                assert!(
                    state.is_none() || behind.remaining() <= ahead.remaining(),
                    "{rule:?} restored units as the clock stepped back: {ahead:?}, then {behind:?}"
                );
                None
            }
            Op::Settle(actual) => {
                if let Some(charge) = last_charge.take() {
                    rule.settle(&mut state, &charge, now, actual);
                    let look = rule.look(state.as_ref(), now);
                    assert!(look.remaining() <= look.limit(), "{rule:?}: {look:?}");
                }
                None
            }
            Op::Change(n) => {
                rule = &rules[n % rules.len()];
                None
            }
        };
        if let Some(cost) = cost.and_then(Cost::new) {
            let before = rule.look(state.as_ref(), now);
            let decision = step(rule, keeps, &mut state, now, cost);
            if let Some(charge) = { decision }.take_charge() {
                check_settlements(rule, &state, &decision, &before);
                last_charge = Some(charge);
                written = written.max(Some(now));
            } else {
                retry = decision.retry_after().and_then(|wait| later(now, wait));
            }
        }
        newest = newest.max(now);
        if keeps.carries_over {
            carry(rule, &mut state, now);
        }
        check_look(rule, keeps, &state, now, newest);
    }
}

/// Makes a refused first call under another rule. It must not change any reported number.
fn carry<A>(rule: &A, state: &mut Option<A::State>, now: Timestamp)
where
    A: Algorithm,
    A::State: Debug,
{
    let look = rule.look(state.as_ref(), now);
    let cost = look.remaining().unwrap() + 1;
    if cost > look.limit().unwrap() {
        return;
    }
    let step = rule.step(state, now, Cost::new(cost).unwrap());
    assert!(!step.decision().is_admitted(), "{rule:?}: {look:?}");
    let after = rule.look(state.as_ref(), now);
    assert_eq!(
        (client_view(&look), look.more_after(), look.reset_after()),
        (client_view(&after), after.more_after(), after.reset_after()),
        "{rule:?} at {now:?}, {state:?}"
    );
}

/// Makes one call. It is admitted exactly if its cost is at most `remaining`, and a refusal keeps
/// its promise and writes nothing.
fn step<A>(
    rule: &A,
    keeps: Keeps,
    state: &mut Option<A::State>,
    now: Timestamp,
    cost: Cost,
) -> Decision
where
    A: Algorithm,
    A::State: Codec + Debug,
{
    let looked = rule.look(state.as_ref(), now);
    let unspent = state.clone();
    let step = rule.step(state, now, cost);
    let decision = step.decision();
    let context = || {
        format!(
            "{rule:?}, cost {}, at {now:?}, {unspent:?}:\n{decision:?}",
            cost.get()
        )
    };
    assert_eq!(
        decision.is_admitted(),
        looked.remaining().unwrap() >= cost.get(),
        "a look returned {looked:?}; {}",
        context()
    );
    assert_eq!(
        (decision.at(), decision.limit()),
        (now, looked.limit()),
        "{}",
        context()
    );
    let delays = matches!(decision.verdict(), Verdict::Delay(_));
    assert!(!delays || rule.may_delay(), "{}", context());
    if decision.is_admitted() {
        assert!(matches!(step, Step::Wrote(_)), "{}", context());
        assert_eq!(
            decision.retry_after(),
            Some(Duration::ZERO),
            "{}",
            context()
        );
        let after = rule.look(state.as_ref(), now);
        assert_eq!(decision.remaining(), after.remaining(), "{}", context());
        assert_eq!(decision.reset_after(), after.reset_after(), "{}", context());
        assert_eq!(decision.more_after(), after.more_after(), "{}", context());
        return decision;
    }
    let known = |state: &A::State| rule.forgettable_at(state) > now;
    if keeps.starts_at_rest || unspent.as_ref().is_some_and(known) {
        assert!(matches!(step, Step::Kept(_)), "{}", context());
        assert_eq!(bytes(state), bytes(&unspent), "{}", context());
    }
    match decision.retry_after() {
        Some(wait) => {
            assert!(!wait.is_zero(), "{}", context());
            if let Some(at) = later(now, wait) {
                let early = spend(rule, state, before(at), cost.get());
                assert!(
                    !early.is_admitted(),
                    "passes early: {early:?}; {}",
                    context()
                );
                let due = spend(rule, state, at, cost.get());
                assert!(due.is_admitted(), "is late: {due:?}; {}", context());
            }
        }
        None => {
            let whiles = [
                decision.reset_after(),
                decision.more_after(),
                Duration::from_secs(1 << 30),
            ];
            for at in whiles.into_iter().filter_map(|wait| later(now, wait)) {
                let never = spend(rule, state, at, cost.get());
                assert!(
                    !never.is_admitted(),
                    "passes at {at:?}: {never:?}; {}",
                    context()
                );
            }
        }
    }
    decision
}

/// Checks settlements. A refund never leaves more than the cost restores, and settling the charged
/// cost changes nothing.
///
/// With a maximum wait there is an exception: a call after which the queue is full for any other
/// call. Its refund may restore more units than it cost, but not more than there were `before`.
fn check_settlements<A>(rule: &A, state: &Option<A::State>, decision: &Decision, before: &Decision)
where
    A: Algorithm,
    A::State: Codec + Debug,
{
    let charge = { *decision }.take_charge().unwrap();
    let now = decision.at();
    let look = rule.look(state.as_ref(), now);
    for actual in [0, 1, charge.cost] {
        let mut corrected = state.clone();
        rule.settle(&mut corrected, &charge, now, actual.min(charge.cost));
        let after = rule.look(corrected.as_ref(), now);
        let back = charge.cost - actual.min(charge.cost);
        assert!(
            after.remaining().unwrap() <= look.remaining().unwrap().saturating_add(back)
                || (after.remaining() <= before.remaining() && look.remaining() == Some(0)),
            "{rule:?} refunded more than it charged: {charge:?}, {look:?}, then {after:?}"
        );
        if back == 0 {
            assert_eq!(
                client_view(&look),
                client_view(&after),
                "{rule:?}: {charge:?} settled as it was"
            );
        }
    }
}

/// Checks the numbers of a look against their definitions. `newest` is the latest time of the clock
/// so far.
fn check_look<A>(
    rule: &A,
    keeps: Keeps,
    state: &Option<A::State>,
    now: Timestamp,
    newest: Timestamp,
) where
    A: Algorithm,
    A::State: Codec + Debug,
{
    let look = rule.look(state.as_ref(), now);
    let context = || format!("{rule:?} at {now:?}, {state:?}:\n{look:?}");
    let remaining = look.remaining().unwrap();
    assert!(remaining <= look.limit().unwrap(), "{}", context());
    assert_eq!(look.is_admitted(), remaining > 0, "{}", context());
    if remaining > 0 {
        assert!(
            spend(rule, state, now, remaining).is_admitted(),
            "{}",
            context()
        );
    }
    assert!(
        !spend(rule, state, now, remaining + 1).is_admitted(),
        "{}",
        context()
    );
    let more = look.more_after();
    // A bucket that does not start at rest starts to fill when it is first seen.
    let known = |state: &A::State| rule.forgettable_at(state) > now;
    let fills = keeps.starts_at_rest || state.as_ref().is_some_and(known);
    if let Some(at) = later(now, more).filter(|_| fills && !more.is_zero()) {
        let [early, due] = [before(at), at].map(|at| rule.look(state.as_ref(), at).remaining());
        assert!(
            early <= look.remaining(),
            "more before `more_after`; {}",
            context()
        );
        assert!(
            due > look.remaining(),
            "no more at `more_after`; {}",
            context()
        );
    }
    if let Some(at) = later(now, look.reset_after()) {
        check_forgettable(rule, state, at.max(newest));
    }
    let Some(known) = state else {
        assert_eq!(look.reset_after(), Duration::ZERO, "{}", context());
        return;
    };
    let end = rule.forgettable_at(known);
    for at in [
        end,
        now.max(end),
        now.max(end).saturating_add(Duration::from_nanos(1)),
    ] {
        check_forgettable(rule, state, at.max(newest));
    }
    if keeps.starts_at_rest && !look.reset_after().is_zero() {
        let reset = later(now, look.reset_after());
        // A state may be remembered longer than until the reset: another rule beside it may still
        // matter, and refunds are remembered until the charges that they moved have passed.
        assert!(
            reset.is_none_or(|reset| reset <= end),
            "resets at {reset:?}, forgettable at {end:?}; {}",
            context()
        );
    }
    let again = A::State::from_bytes(&known.to_bytes()).map(Some).unwrap();
    assert_eq!(bytes(&again), bytes(state), "{}", context());
    for cost in [1, remaining.max(1)] {
        let cost = Cost::new(cost).unwrap();
        let read = rule.step(&mut again.clone(), now, cost).decision();
        assert_eq!(
            client_view(&read),
            client_view(&spend(rule, state, now, cost.get())),
            "{}",
            context()
        );
    }
}

/// Checks that from `at` on, the state decides like no state.
///
/// This excludes clocks that step back, because only a state keeps its last write.
fn check_forgettable<A: Algorithm>(rule: &A, state: &Option<A::State>, at: Timestamp)
where
    A::State: Debug,
{
    let (known, fresh) = (rule.look(state.as_ref(), at), rule.look(None, at));
    assert_eq!(
        client_view(&known),
        client_view(&fresh),
        "{rule:?} at {at:?}, {state:?}"
    );
    for cost in [1, fresh.remaining().unwrap().max(1)] {
        let (mut a, mut b) = (state.clone(), None);
        for _ in 0..3 {
            let cost = Cost::new(cost).unwrap();
            let (a, b) = (
                rule.step(&mut a, at, cost).decision(),
                rule.step(&mut b, at, cost).decision(),
            );
            assert_eq!(
                client_view(&a),
                client_view(&b),
                "{rule:?} at {at:?}, {state:?}, cost {}",
                cost.get()
            );
        }
    }
}
