//! The decisions of the store in memory, and the compared numbers of a decision.

use std::time::Duration;

use tollgate::{
    AnyRule, Cost, Decision, Timestamp, Verdict,
    algorithm::{Algorithm, Step},
};

use super::{algorithms, rules::GRANTING};

type AnyState = <AnyRule as Algorithm>::State;

/// The numbers of a decision, in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InMicros {
    verdict: Verdict,
    pub(super) spent: Option<(u64, u32)>,
    class: u8,
    limit: Option<u64>,
    remaining: Option<u64>,
    /// `retry_after`, `more_after` and `reset_after`.
    waits: [Option<u128>; 3],
}

pub(super) fn in_micros(decision: &Decision) -> InMicros {
    let micros = |wait: Duration| wait.as_nanos().div_ceil(1000);
    let up = |wait| Duration::from_micros(micros(wait) as u64);
    InMicros {
        verdict: match decision.verdict() {
            Verdict::Delay(delay) => Verdict::Delay(up(delay)),
            other => other,
        },
        spent: { *decision }
            .take_charge()
            .map(|charge| (charge.cost, charge.class)),
        class: decision.class(),
        limit: decision.limit(),
        remaining: decision.remaining(),
        waits: [
            decision.retry_after().map(micros),
            Some(micros(decision.more_after())),
            Some(micros(decision.reset_after())),
        ],
    }
}

impl InMicros {
    /// Returns `true` if no wait differs by more than a microsecond, and nothing else differs.
    pub(super) fn is_near(&self, other: &Self) -> bool {
        let (own, others) = (self.all_waits(), other.all_waits());
        let near = |(own, other): (&Option<u128>, &Option<u128>)| match (own, other) {
            (Some(own), Some(other)) => own.abs_diff(*other) <= 1,
            (own, other) => own == other,
        };
        let numbers = |decision: &Self| {
            (
                decision.spent,
                decision.class,
                decision.limit,
                decision.remaining,
            )
        };
        std::mem::discriminant(&self.verdict) == std::mem::discriminant(&other.verdict)
            && numbers(self) == numbers(other)
            && own.iter().zip(&others).all(near)
    }

    fn all_waits(&self) -> [Option<u128>; 4] {
        let delay = match self.verdict {
            Verdict::Delay(delay) => Some(delay.as_micros()),
            _ => None,
        };
        let [retry, more, reset] = self.waits;
        [delay, retry, more, reset]
    }
}

/// The keys of one client in memory, each with a state for each kind of rule.
pub(super) struct Memory(pub(super) Vec<Option<AnyState>>);

/// One ask: the index of the state, the rule for that key, the cost, and up to how many units are
/// granted.
pub(super) type Question = (usize, AnyRule, Cost, u64);

/// Returns what an ask spends, as `Ask::up_to` says, of a rule whose units can be granted ahead.
pub(super) fn granted(
    rule: &AnyRule,
    state: Option<&AnyState>,
    now: Timestamp,
    cost: Cost,
    up_to: u64,
) -> Cost {
    let can = |name: &String| GRANTING.contains(&&**name);
    if !algorithms(rule).iter().all(can) {
        return cost;
    }
    let remaining = rule.look(state, now).remaining().unwrap();
    Cost::new(cost.get().max(up_to.min(remaining / 4))).unwrap()
}

impl Memory {
    /// Decides all or nothing. If one ask is refused, the others are answered with looks. The write
    /// of a refusal stays, without the charges of the others.
    pub(super) fn decide(&mut self, questions: &[Question], now: Timestamp) -> Vec<Decision> {
        let mut after = self.0.clone();
        let step = |(key, rule, cost, up_to): &Question| {
            let cost = granted(rule, after[*key].as_ref(), now, *cost, *up_to);
            rule.step(&mut after[*key], now, cost)
        };
        let steps: Vec<Step> = questions.iter().map(step).collect();
        let decisions: Vec<_> = steps.iter().map(|step| step.decision()).collect();
        if decisions.iter().all(Decision::is_admitted) {
            self.0 = after;
            return decisions;
        }
        let before = self.0.clone();
        for ((key, rule, cost, _), step) in questions.iter().zip(&steps) {
            let mut alone = self.0[*key].clone();
            let wrote = matches!(step, Step::Wrote(decision) if !decision.is_admitted());
            if wrote && !rule.step(&mut alone, now, *cost).decision().is_admitted() {
                self.0[*key] = alone;
            }
        }
        let looked = questions
            .iter()
            .zip(decisions)
            .map(|((key, rule, ..), decision)| {
                if decision.is_admitted() {
                    rule.look(before[*key].as_ref(), now)
                } else {
                    decision
                }
            });
        looked.collect()
    }
}
