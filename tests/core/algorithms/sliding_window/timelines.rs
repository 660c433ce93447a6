//! Compares verdicts and all numbers with the oracle on adversarial timelines.

use tollgate::{Charge, algorithm::Step};

use crate::algorithms::answer::Answer;

use super::{
    oracle::{Oracle, Setting},
    *,
};

const DAY: u64 = 24 * 60 * MINUTE;

fn settings() -> impl Strategy<Value = Setting> {
    let windows = prop_oneof![
        3 => prop::sample::select(vec![SECOND, MINUTE, 60 * MINUTE]),
        2 => 1..50_u64,
        1 => 1..=365 * DAY,
        1 => prop::sample::select(vec![365 * DAY, i64::MAX as u64]),
    ];
    let slices = prop_oneof![
        3 => prop::sample::select(vec![1_u64, 2, 4, 7, 60]),
        1 => 1..40_u64,
    ];
    let amounts = prop_oneof![
        4 => 1..20_u64,
        2 => prop::sample::select(vec![60, 100, 999_999, 10_000_000_000]),
        1 => 1..=Quota::MAX_AMOUNT,
    ];
    (windows, slices, amounts)
        .prop_map(|(window, slices, amount)| Setting {
            amount,
            window,
            slices: slices.min(window),
        })
        .prop_filter("a valid quota", |setting| {
            Quota::try_new(setting.amount, Duration::from_nanos(setting.window)).is_ok()
        })
}

#[derive(Clone, Debug)]
enum Op {
    Spend {
        wait: Wait,
        cost: RequestCost,
    },
    Look(Wait),
    /// In thousandths of a window.
    Back(u64),
    Settle(Actual),
    /// To another amount, and perhaps to other slices.
    Change {
        rule: Setting,
        slices_too: bool,
    },
}

#[derive(Clone, Debug)]
enum Wait {
    None,
    Nanos(u64),
    /// In thousandths of a window.
    Part(u64),
    /// In slices, approximately.
    Slices(u64),
    /// The last refusal's wait, or a nanosecond less or more.
    Retry(i64),
}

#[derive(Clone, Debug)]
enum RequestCost {
    Units(u64),
    /// In tenths of the amount.
    Part(u64),
    /// The last remaining units plus this many.
    Remaining(u64),
}

#[derive(Clone, Debug)]
enum Actual {
    Units(u64),
    Twice,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let wait = || {
        prop_oneof![
            3 => Just(Wait::None),
            1 => (0..3_u64).prop_map(Wait::Nanos),
            1 => (0..200 * 365 * DAY).prop_map(Wait::Nanos),
            4 => (0..1100_u64).prop_map(Wait::Part),
            3 => (1..4_u64).prop_map(Wait::Slices),
            2 => (-1..=1_i64).prop_map(Wait::Retry),
        ]
    };
    let cost = prop_oneof![
        3 => (1..5_u64).prop_map(RequestCost::Units),
        3 => (1..11_u64).prop_map(RequestCost::Part),
        2 => (0..2_u64).prop_map(RequestCost::Remaining),
        1 => (1..=u64::MAX).prop_map(RequestCost::Units),
    ];
    let actual = prop_oneof![
        4 => (0..6_u64).prop_map(Actual::Units),
        1 => Just(Actual::Twice),
        1 => prop_oneof![Just(u64::MAX), 0..=u64::MAX].prop_map(Actual::Units),
    ];
    let op = prop_oneof![
        8 => (wait(), cost).prop_map(|(wait, cost)| Op::Spend { wait, cost }),
        2 => wait().prop_map(Op::Look),
        1 => (0..1500_u64).prop_map(Op::Back),
        1 => actual.prop_map(Op::Settle),
        1 => (settings(), any::<bool>()).prop_map(|(rule, slices_too)| Op::Change { rule, slices_too }),
    ];
    prop::collection::vec(op, 1..30)
}

/// A rule, its state, and the oracle beside it.
struct Run {
    setting: Setting,
    state: Option<SlidingWindowState>,
    oracle: Oracle,
    now: u64,
    retry: u64,
    remaining: u64,
    charges: Vec<Charge>,
}

impl Run {
    fn wait(&mut self, wait: &Wait) {
        let window = self.setting.window;
        let nanos = match *wait {
            Wait::None => 0,
            Wait::Nanos(nanos) => nanos,
            Wait::Part(part) => (u128::from(window) * u128::from(part) / 1000) as u64,
            Wait::Slices(slices) => window.div_ceil(self.setting.slices).saturating_mul(slices),
            Wait::Retry(more) => self.retry.saturating_add_signed(more),
        };
        self.now = self.now.saturating_add(nanos).min(i64::MAX as u64);
    }

    fn spend(&mut self, cost: u64) -> Result<(), TestCaseError> {
        let (rule, now, before) = (self.setting.rule(), at(self.now), self.state.clone());
        let step = rule.step(&mut self.state, now, Cost::new(cost).unwrap());
        let decision = step.decision();
        prop_assert_eq!(
            Answer::of(&decision),
            self.oracle.step(&self.setting, self.now, cost)
        );
        prop_assert_eq!(matches!(step, Step::Wrote(_)), decision.is_admitted());
        prop_assert!(decision.is_admitted() || before == self.state);
        self.charges.extend({ decision }.take_charge());
        if let (false, Some(wait)) = (decision.is_admitted(), decision.retry_after()) {
            self.retry = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        }
        self.remaining = decision.remaining().unwrap();
        Ok(())
    }

    fn look(&mut self) -> Result<(), TestCaseError> {
        let look = self.setting.rule().look(self.state.as_ref(), at(self.now));
        prop_assert_eq!(Answer::of(&look), self.oracle.look(&self.setting, self.now));
        self.remaining = look.remaining().unwrap();
        Ok(())
    }

    fn go(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Spend { wait, cost } => {
                self.wait(&wait);
                self.spend(match cost {
                    RequestCost::Units(units) => units,
                    RequestCost::Part(tenths) => (self.setting.amount * tenths / 10).max(1),
                    RequestCost::Remaining(more) => (self.remaining + more).max(1),
                })
            }
            Op::Look(wait) => {
                self.wait(&wait);
                self.look()
            }
            Op::Back(part) => {
                let nanos = u128::from(self.setting.window) * u128::from(part) / 1000;
                self.now = self.now.saturating_sub(nanos as u64);
                self.look()
            }
            Op::Settle(actual) => {
                let Some(charge) = self.charges.pop() else {
                    return Ok(());
                };
                let actual = match actual {
                    Actual::Units(units) => units,
                    Actual::Twice => charge.cost * 2,
                };
                let rule = self.setting.rule();
                rule.settle(&mut self.state, &charge, at(self.now), actual);
                self.oracle.settle(
                    &self.setting,
                    charge.at.as_nanos(),
                    charge.cost,
                    self.now,
                    actual,
                );
                self.look()
            }
            Op::Change { rule, slices_too } => {
                self.setting = if slices_too {
                    rule
                } else {
                    let amount = rule.amount.min(self.setting.amount);
                    Setting {
                        amount,
                        ..self.setting
                    }
                };
                self.look()
            }
        }
    }
}

proptest! {
    #[test]
    fn equals_the_oracle(
        setting in settings(), ops in ops(),
        start in prop_oneof![
            Just(0), 0..i64::MAX as u64 / 2, Just(1_767_235_685_123_456_789), Just(i64::MAX as u64 - 5),
        ],
    ) {
        let mut run = Run {
            setting,
            state: None,
            oracle: Oracle::default(),
            now: start,
            retry: 0,
            remaining: setting.amount,
            charges: Vec::new(),
        };
        for op in ops {
            run.go(op)?;
        }
    }
}
