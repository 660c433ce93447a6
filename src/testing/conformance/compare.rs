//! Compares answers and describes them.

use std::time::Duration;

use crate::decision::{Decision, Verdict};

/// The differences that an answer may have from the decision of its rule.
#[derive(Clone, Copy)]
pub(super) struct Tolerance {
    /// The resolution to which waits may be rounded up, in nanoseconds; 1 for none.
    pub(super) step: u64,
    /// Set if waits are not compared.
    pub(super) is_loose: bool,
}

impl Tolerance {
    /// All numbers must be equal.
    pub(super) const NONE: Self = Self {
        step: 1,
        is_loose: false,
    };

    /// Returns `true` if the answer of a store agrees with the decision of its rule at that instant.
    pub(super) fn agree(self, rule: &Decision, store: &Decision) -> bool {
        let at_once = |decision: &Decision| {
            let numbers = (decision.limit(), decision.quota(), decision.remaining());
            let charge = decision.charge();
            let charge = charge.map(|charge| (charge.at, charge.class, charge.cost));
            (decision.is_admitted(), numbers, decision.class(), charge)
        };
        let waits = |decision: &Decision| {
            let verdict = match decision.verdict() {
                Verdict::Delay(wait) => Some(wait),
                _ => None,
            };
            let delay = decision.charge().and_then(|charge| charge.delay);
            [
                verdict,
                delay,
                decision.retry_after(),
                Some(decision.reset_after()),
                Some(decision.more_after()),
            ]
        };
        let mut pairs = waits(rule).into_iter().zip(waits(store));
        at_once(rule) == at_once(store) && pairs.all(|(rule, store)| self.is_wait(rule, store))
    }

    fn is_wait(self, rule: Option<Duration>, store: Option<Duration>) -> bool {
        match (rule, store) {
            (Some(rule), Some(store)) if !self.is_loose => {
                let beyond = store.checked_sub(rule).map(|beyond| beyond.as_nanos());
                let step = u128::from(self.step);
                let up_to = rule.as_nanos().next_multiple_of(step) - rule.as_nanos();
                beyond.is_some_and(|beyond| beyond <= up_to)
            }
            (rule, store) => rule.is_some() == store.is_some(),
        }
    }
}

/// Describes an answer in words.
pub(super) fn in_words(decision: &Decision) -> String {
    let number =
        |units: Option<u64>| units.map_or_else(|| "?".to_owned(), |units| units.to_string());
    let verdict = match decision.verdict() {
        Verdict::Allow => "allowed".to_owned(),
        Verdict::Delay(wait) => format!("allowed after {wait:?}"),
        Verdict::Refuse => match decision.retry_after() {
            Some(wait) => format!("refused, retry after {wait:?}"),
            None => "refused for ever".to_owned(),
        },
        Verdict::Undecided { admitted: true } => "undecided, admitted".to_owned(),
        Verdict::Undecided { .. } => "undecided, refused".to_owned(),
        Verdict::DryRun { .. } => "on a dry run".to_owned(),
    };
    let mut text = format!(
        "{verdict}, {} of {} left",
        number(decision.remaining()),
        number(decision.limit())
    );
    let waits = [
        ("more after", decision.more_after()),
        ("reset after", decision.reset_after()),
    ];
    for (name, wait) in waits
        .into_iter()
        .filter(|(_, wait)| *wait != Duration::ZERO)
    {
        text.push_str(&format!(", {name} {wait:?}"));
    }
    if decision.class() > 0 {
        text.push_str(&format!(", class {}", decision.class()));
    }
    if let Some(charge) = decision.charge() {
        text.push_str(&format!(", charged {}", charge.cost));
    }
    text
}
