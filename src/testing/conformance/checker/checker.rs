//! The checker of one law.

use std::{collections::VecDeque, fmt::Debug};

use crate::{
    algorithm::Algorithm,
    decision::{Cost, Decision},
    key::Key,
    policy::Policy,
    testing::conformance::{
        Law,
        compare::in_words,
        model::{Mismatch, Model},
        report::Breach,
        settings::Settings,
        subject::{Subject, nonce},
        tested::TestedStore,
    },
};

/// The number of calls in a report.
const MAX_SHOWN: usize = 24;

pub(in super::super) type CheckResult = Result<(), Breach>;

/// Calls a store for one law, records the calls, and compares the answers with the rule.
pub(in super::super) struct Checker<'a, R: Algorithm> {
    pub(in super::super) store: &'a dyn TestedStore<R>,
    pub(in super::super) suite: &'a Settings<R>,
    law: Law,
    nonce: u64,
    subjects: u32,
    pub(in super::super) model: Model<R>,
    pub(super) under: String,
    trace: VecDeque<String>,
    earlier: usize,
    pub(in super::super) calls: u64,
}

/// Returns a cost of `units` units, at least 1.
pub(in super::super) fn cost(units: u64) -> Cost {
    Cost::new(units).unwrap_or(Cost::ONE)
}

impl<'a, R: Algorithm + Debug> Checker<'a, R> {
    pub(in super::super) fn new(
        store: &'a dyn TestedStore<R>,
        suite: &'a Settings<R>,
        law: Law,
    ) -> Self {
        Self {
            store,
            suite,
            law,
            nonce: nonce(),
            subjects: 0,
            model: Model::new(suite.step),
            under: String::new(),
            trace: VecDeque::new(),
            earlier: 0,
            calls: 0,
        }
    }

    /// Starts a new sequence of calls, with new keys and an empty record.
    pub(in super::super) fn begin(&mut self, rule: &R) {
        self.nonce = self.nonce.wrapping_add(1);
        self.under = format!("{rule:?}");
        self.model = Model::new(self.suite.step);
        self.trace.clear();
        self.earlier = 0;
    }

    /// Returns a new key under the law's policy.
    pub(in super::super) fn subject(&mut self, name: &str) -> Subject {
        self.subjects += 1;
        let key = Key::join([
            Key::from(name),
            Key::from(self.nonce),
            Key::from(u64::from(self.subjects)),
        ]);
        self.named(name, "", key)
    }

    /// Returns a given key under a policy of this run.
    pub(in super::super) fn named(&self, name: &str, policy: &str, key: Key) -> Subject {
        let policy = format!("{}-{:016x}{policy}", self.law.name(), self.nonce);
        Subject {
            name: name.to_owned(),
            // Always valid: names are short and printable.
            policy: Policy::try_new(&policy).unwrap_or_default(),
            key,
        }
    }

    pub(in super::super) fn breach(&self, what: impl Into<String>) -> Breach {
        Breach {
            law: self.law,
            under: self.under.clone(),
            what: what.into(),
            calls: self.trace.iter().cloned().collect(),
            earlier: self.earlier,
            seed: None,
        }
    }

    /// Returns the error of a law that could not be checked and was not left out.
    pub(in super::super) fn unchecked(&self, what: &str) -> Breach {
        Breach {
            law: self.law,
            under: String::new(),
            what: format!(
                "not checked: {what}, or leave it out by `.without(Law::{:?})`",
                self.law
            ),
            calls: Vec::new(),
            earlier: 0,
            seed: None,
        }
    }

    pub(in super::super) fn note(&mut self, line: String) {
        if self.trace.len() == MAX_SHOWN {
            self.trace.pop_front();
            self.earlier += 1;
        }
        self.trace.push_back(line);
    }

    /// Returns `true` if numbers are compared, not only calls counted.
    pub(in super::super) fn is_exact(&self) -> bool {
        self.suite.slack.is_none()
    }

    pub(in super::super) fn moves_time(&self) -> bool {
        self.suite.clock.is_some()
    }

    pub(in super::super) fn compared(
        &self,
        compared: Result<(), Mismatch>,
        answer: &Decision,
    ) -> CheckResult {
        compared.map_err(|Mismatch(decision)| {
            self.breach(format!(
                "the store answers\n    {}\n  but its rule, at the instant of the answer, decides\n    {}",
                in_words(answer),
                in_words(&decision)
            ))
        })
    }
}
