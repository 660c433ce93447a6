//! Compares the fixed window with an oracle that keeps a list of all windows and divides big
//! integers.

use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{ToPrimitive, Zero};
use proptest::prelude::*;
use tollgate::{
    Charge, Cost, Timestamp,
    algorithm::{Algorithm, Codec, Step},
};

use crate::algorithms::answer::Answer;

use super::{Setting, instants, settings};

/// A window with a count.
#[derive(Clone, Debug)]
struct Window {
    /// Admissions from this instant on are in the count.
    from: BigInt,
    end: BigInt,
    count: BigInt,
}

/// All windows of one key, under any rule.
#[derive(Default)]
struct Oracle(Vec<Window>);

/// Returns the start and the end of the window that contains an instant, if some window starts at
/// `anchor`.
fn holding(at: &BigInt, length: u64, anchor: &BigInt) -> [BigInt; 2] {
    let start = (at - anchor).div_floor(&BigInt::from(length)) * length + anchor;
    let end = &start + length;
    [start, end]
}

/// Returns the window that contains an instant. Without an offset it starts at `begun`.
fn window_of(rule: &Setting, at: &BigInt, begun: &BigInt) -> Window {
    let anchor = rule.offset.map_or_else(|| begun.clone(), BigInt::from);
    let [start, end] = holding(at, rule.length, &anchor);
    Window {
        from: start.max(BigInt::zero()),
        end,
        count: BigInt::zero(),
    }
}

impl Oracle {
    /// Returns the window that counts a call, and `true` if it takes over the count of another
    /// rule.
    fn find(&self, rule: &Setting, now: &BigInt) -> (Window, bool) {
        let Some(last) = self.0.last() else {
            return (window_of(rule, now, now), false);
        };
        // Time is clamped to the start of the last window.
        let at = now.max(&last.from);
        if *now >= last.end || last.count.is_zero() {
            return (window_of(rule, at, at), false);
        }
        if window_of(rule, &last.from, &last.from).end == last.end {
            return (last.clone(), false);
        }
        let mut window = window_of(rule, at, &last.from);
        window.from = window.from.max(last.from.clone());
        window.count = last.count.clone();
        (window, true)
    }

    fn answer(rule: &Setting, now: &BigInt, window: &Window, admitted: bool, cost: u64) -> Answer {
        let ends_in = &window.end - now;
        let wait = if window.count.is_zero() {
            BigInt::zero()
        } else {
            ends_in.clone()
        };
        Answer {
            admitted,
            limit: rule.limit,
            remaining: (rule.limit - &window.count).to_u64().unwrap_or(0),
            retry: if admitted {
                Some(BigInt::zero())
            } else {
                (cost <= rule.limit).then_some(ends_in)
            },
            reset: wait.clone(),
            more: wait,
            ..Answer::default()
        }
    }

    fn fits(rule: &Setting, window: &Window, cost: u64) -> bool {
        &window.count + cost <= BigInt::from(rule.limit)
    }

    fn look(&self, rule: &Setting, now: u64) -> Answer {
        let now = BigInt::from(now);
        let (window, _) = self.find(rule, &now);
        Self::answer(rule, &now, &window, Self::fits(rule, &window, 1), 1)
    }

    /// Returns the answer, and `true` if the state is written.
    fn step(&mut self, rule: &Setting, now: u64, cost: u64) -> (Answer, bool) {
        let now = BigInt::from(now);
        let (mut window, takes_over) = self.find(rule, &now);
        let admitted = Self::fits(rule, &window, cost);
        if admitted {
            window.count += cost;
        }
        let answer = Self::answer(rule, &now, &window, admitted, cost);
        let writes = admitted || (takes_over && cost <= rule.limit);
        if writes {
            self.0.push(window);
        }
        (answer, writes)
    }

    fn settle(&mut self, rule: &Setting, charge: &Charge, now: u64, actual: u64) {
        let (at, now) = (BigInt::from(charge.at.as_nanos()), BigInt::from(now));
        let more = BigInt::from(actual) - charge.cost;
        let mut newest = now.clone();
        if let Some(last) = self.0.last_mut() {
            if !last.count.is_zero() && last.from <= at && at < last.end {
                last.count = (&last.count + more).max(BigInt::zero());
                return;
            }
            if !last.count.is_zero() && now < last.end {
                return;
            }
            newest = newest.max(last.from.clone());
        }
        if rule.offset.is_none() || more <= BigInt::zero() {
            return;
        }
        let mut window = window_of(rule, &at, &at);
        if newest < window.end {
            window.count = more;
            self.0.push(window);
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Spend(u64),
    /// The remaining units plus this many.
    SpendRest(u64),
    Wait(u64),
    /// To the end of the window under the current rule, or a nanosecond before or after.
    ToEnd(i64),
    /// To the end of the stored window, under any rule.
    ToKnownEnd(i64),
    Back(u64),
    /// Settles one of the unsettled calls.
    Settle(prop::sample::Index, u64),
    /// Switches to another rule.
    Change(usize),
}

fn timeline(rules: &[Setting; 3]) -> impl Strategy<Value = Vec<Op>> + use<> {
    let Setting { limit, length, .. } = rules[0];
    let op = prop_oneof![
        5 => (1..=limit / 3 + 1).prop_map(Op::Spend),
        1 => Just(Op::Spend(u64::MAX)),
        3 => (0..2_u64).prop_map(Op::SpendRest),
        2 => (0..=length / 3).prop_map(Op::Wait),
        1 => (0..=length).prop_map(|more| Op::Wait(more.saturating_mul(3))),
        2 => (-1..=1_i64).prop_map(Op::ToEnd),
        1 => (-1..=1_i64).prop_map(Op::ToKnownEnd),
        1 => prop_oneof![0..=length / 3, Just(1), 0..=length].prop_map(Op::Back),
        3 => (any::<prop::sample::Index>(), prop_oneof![3 => Just(0), 3 => 0..=limit, 1 => 0..=1_u64 << 41])
            .prop_map(|(call, actual)| Op::Settle(call, actual)),
        2 => (0..3_usize).prop_map(Op::Change),
    ];
    prop::collection::vec(op, 1..80)
}

/// Three rules whose windows are of similar length, or of unrelated lengths.
fn rules() -> impl Strategy<Value = [Setting; 3]> {
    let near = (
        settings(),
        1..6_u64,
        1..6_u64,
        any::<[Option<u64>; 2]>(),
        1..20_u64,
        1..20_u64,
    )
        .prop_map(|(first, parts, times, [one, other], few, some)| {
            let shorter = (first.length / parts).max(1);
            let longer = (first.length / parts).saturating_mul(times).max(1);
            let one = Setting {
                limit: few,
                length: shorter,
                offset: one.map(|offset| offset % shorter),
            };
            let other = Setting {
                limit: some,
                length: longer,
                offset: other.map(|offset| offset % longer),
            };
            [first, one, other]
        });
    let any = [settings(), settings(), settings()];
    let rules = prop_oneof![3 => near, 1 => any.prop_map(|[a, b, c]| [a, b, c])];
    rules.prop_filter("valid quotas", |rules| {
        rules.iter().all(Setting::is_possible)
    })
}

/// The latest instant of these timelines. No window ends after the largest timestamp.
const LATEST: u64 = i64::MAX as u64;

fn moved(now: u64, nanos: u64, more: i64) -> u64 {
    let at = now.saturating_add(nanos).saturating_add_signed(more);
    at.min(LATEST)
}

proptest! {
    #[test]
    fn equals_the_oracle(
        (settings, ops) in rules().prop_flat_map(|rules| (Just(rules), timeline(&rules))),
        begin in instants(),
    ) {
        let rules = settings.map(|setting| setting.rule());
        let (mut oracle, mut state) = (Oracle::default(), None);
        let (mut now, mut open, mut which) = (begin, Vec::<Charge>::new(), 0);
        for op in ops {
            let (rule, setting) = (&rules[which], &settings[which]);
            let at = Timestamp::from_nanos(now);
            let look = rule.look(state.as_ref(), at);
            let cost = match op {
                Op::Spend(cost) => Some(cost),
                Op::SpendRest(more) => Some((look.remaining().unwrap() + more).max(1)),
                _ => None,
            };
            match op {
                Op::Wait(nanos) => now = moved(now, nanos, 0),
                Op::ToEnd(more) => now = moved(now, look.reset_after().as_nanos() as u64, more),
                Op::ToKnownEnd(more) => {
                    let end = state.map_or(at, |state| rule.forgettable_at(&state));
                    now = moved(end.as_nanos(), 0, more);
                }
                Op::Back(nanos) => now = now.saturating_sub(nanos),
                Op::Settle(call, actual) if !open.is_empty() => {
                    let charge = open.remove(call.index(open.len()));
                    rule.settle(&mut state, &charge, at, actual);
                    oracle.settle(setting, &charge, now, actual);
                }
                Op::Change(next) => which = next,
                _ => {}
            }
            let at = Timestamp::from_nanos(now);
            if let Some(cost) = cost {
                let before = state.to_bytes();
                let step = rule.step(&mut state, at, Cost::new(cost).unwrap());
                let (answer, writes) = oracle.step(setting, now, cost);
                let context = format!("cost {cost} at {now} of {rule}, {:?}", oracle.0);
                prop_assert_eq!(Answer::of(&step.decision()), answer, "{}", context);
                prop_assert_eq!(matches!(step, Step::Wrote(_)), writes, "{}", context);
                prop_assert!(writes || state.to_bytes() == before, "{}", context);
                open.extend(step.decision().take_charge());
            }
            for (rule, setting) in rules.iter().zip(&settings) {
                let (look, expected) = (rule.look(state.as_ref(), at), oracle.look(setting, now));
                prop_assert_eq!(Answer::of(&look), expected, "{:?} at {}, by {}", state, now, rule);
            }
            if let Some(state) = state {
                // A window with a count of zero can be forgotten.
                let last = oracle.0.last().unwrap();
                let end = if last.count.is_zero() { &last.from } else { &last.end };
                prop_assert_eq!(BigInt::from(rule.forgettable_at(&state).as_nanos()), end.clone());
            }
        }
    }
}
