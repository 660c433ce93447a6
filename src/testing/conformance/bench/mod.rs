//! One law's calls of the store: each is written down, and compared with what the rule decides.
//!
//! | file | |
//! |---|---|
//! | `ask` | acquiring and looking |
//! | `correct` | settling and resetting |
//! | `count` | how many calls pass |
//! | `time` | patience, and waiting |

mod ask;
mod correct;
mod count;
mod time;

use std::{collections::VecDeque, fmt::Debug};

use super::{
    Law, Suite,
    answer::in_words,
    model::{Model, Otherwise},
    place::{Place, nonce},
    report::Breach,
};
use crate::{
    algorithm::Algorithm,
    decision::{Cost, Decision},
    key::Key,
    policy::Policy,
    store::Store,
};

pub(super) use self::{
    ask::Asked,
    correct::Corrected,
    count::{Lot, MANY},
};

/// As many calls are shown.
const SHOWN: usize = 24;

pub(super) type Kept = Result<(), Breach>;

/// What a law needs to call the store and to judge its answers.
pub(super) struct Bench<'a, R: Algorithm, S> {
    pub(super) suite: &'a Suite<R, S>,
    law: Law,
    nonce: u64,
    places: u32,
    pub(super) model: Model<R>,
    under: String,
    trace: VecDeque<String>,
    earlier: usize,
    pub(super) calls: u64,
}

/// A cost of so many units, at least 1.
pub(super) fn cost(units: u64) -> Cost {
    Cost::new(units).unwrap_or(Cost::ONE)
}

impl<'a, R, S> Bench<'a, R, S>
where
    R: Algorithm + Debug,
    S: Store<R, Error: Debug>,
{
    pub(super) fn new(suite: &'a Suite<R, S>, law: Law) -> Self {
        Self {
            suite,
            law,
            nonce: nonce(),
            places: 0,
            model: Model::new(suite.step),
            under: String::new(),
            trace: VecDeque::new(),
            earlier: 0,
            calls: 0,
        }
    }

    /// A new chapter, with names of its own: what came before is not told.
    pub(super) fn begin(&mut self, rule: &R) {
        self.nonce = self.nonce.wrapping_add(1);
        self.under = format!("{rule:?}");
        self.model = Model::new(self.suite.step);
        self.trace.clear();
        self.earlier = 0;
    }

    /// A fresh key under the law's policy.
    pub(super) fn place(&mut self, name: &str) -> Place {
        self.places += 1;
        let key = Key::join([
            Key::from(name),
            Key::from(self.nonce),
            Key::from(u64::from(self.places)),
        ]);
        self.named(name, "", key)
    }

    /// A key of one's own choice under a policy of this run.
    pub(super) fn named(&self, name: &str, policy: &str, key: Key) -> Place {
        let policy = format!("{}-{:016x}{policy}", self.law.name(), self.nonce);
        Place {
            name: name.to_owned(),
            // Names are short and printable.
            policy: Policy::try_new(&policy).unwrap_or_default(),
            key,
        }
    }

    pub(super) fn breach(&self, what: impl Into<String>) -> Breach {
        Breach {
            law: self.law,
            under: self.under.clone(),
            what: what.into(),
            calls: self.trace.iter().cloned().collect(),
            earlier: self.earlier,
            seed: None,
        }
    }

    /// The law could not be checked, and the suite was not told to leave it out.
    pub(super) fn unchecked(&self, what: &str) -> Breach {
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

    pub(super) fn note(&mut self, line: String) {
        if self.trace.len() == SHOWN {
            self.trace.pop_front();
            self.earlier += 1;
        }
        self.trace.push_back(line);
    }

    /// Whether numbers are compared, and not only calls counted.
    fn is_exact(&self) -> bool {
        self.suite.slack.is_none()
    }

    pub(super) fn moves_time(&self) -> bool {
        self.suite.clock.is_some()
    }

    fn compared(&self, compared: Result<(), Otherwise>, answer: &Decision) -> Kept {
        compared.map_err(|Otherwise(decision)| {
            self.breach(format!(
                "the store answers\n    {}\n  where its rule decides, at the instant that the answer tells,\n    {}",
                in_words(answer),
                in_words(&decision)
            ))
        })
    }
}
