//! The slow and obvious model: each rule alone, and counts by the definition of each field.

use std::collections::{HashMap, HashSet};

use tollgate::{AnyRule, Cost, DryRunReport, Timestamp, algorithm::Algorithm};

/// A rule with a state for each client, and nothing else.
pub(crate) struct Alone {
    rule: AnyRule,
    states: HashMap<u64, Option<<AnyRule as Algorithm>::State>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Would {
    Admit,
    Delay,
    Refuse,
}

impl Alone {
    pub(crate) fn new(rule: AnyRule) -> Self {
        Self {
            rule,
            states: HashMap::new(),
        }
    }

    pub(crate) fn decide(&mut self, at: Timestamp, client: u64, units: u64) -> Would {
        let state = self.states.entry(client).or_default();
        let step = self.rule.step(state, at, Cost::new(units).unwrap());
        match step.decision().verdict() {
            tollgate::Verdict::Allow => Would::Admit,
            tollgate::Verdict::Delay(_) => Would::Delay,
            tollgate::Verdict::Refuse => Would::Refuse,
            other => panic!("a rule alone returned {other:?}"),
        }
    }
}

/// A journal of what a dry run and the limit that it is compared with decided, one entry per
/// request.
#[derive(Default)]
pub(crate) struct Journal(Vec<(u64, Would, Option<Would>)>);

impl Journal {
    pub(crate) fn note(&mut self, client: u64, dry: Would, live: Option<Would>) {
        self.0.push((client, dry, live));
    }

    pub(crate) fn report(&self) -> DryRunReport {
        let refuses = |would: Would| would == Would::Refuse;
        let count = |matches: &dyn Fn(Would, Option<bool>) -> bool| {
            let entries = self.0.iter();
            let matching = entries.filter(|(_, dry, live)| matches(*dry, live.map(refuses)));
            matching.clone().count() as u64
        };
        let keys = |matches: &dyn Fn(Would, Option<bool>) -> bool| {
            let entries = self.0.iter();
            let matching = entries.filter(|(_, dry, live)| matches(*dry, live.map(refuses)));
            matching
                .map(|(client, ..)| client)
                .collect::<HashSet<_>>()
                .len() as u64
        };
        let mut report = DryRunReport::default();
        report.admitted = count(&|dry, _| !refuses(dry));
        report.delayed = count(&|dry, _| dry == Would::Delay);
        report.refused = count(&|dry, _| refuses(dry));
        report.refused_keys = keys(&|dry, _| refuses(dry));
        report.both_admitted = count(&|dry, live| !refuses(dry) && live == Some(false));
        report.both_refused = count(&|dry, live| refuses(dry) && live == Some(true));
        report.admitted_alone = count(&|dry, live| !refuses(dry) && live == Some(true));
        report.refused_alone = count(&|dry, live| refuses(dry) && live == Some(false));
        report.refused_alone_keys = keys(&|dry, live| refuses(dry) && live == Some(false));
        report
    }
}
