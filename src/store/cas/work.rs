//! What is to be done about a key.

use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};

use crate::{
    decision::{Charge, Cost},
    store::{Decisions, Error},
};

/// Asks about one key, each with its rule as the key meets it.
pub(super) type Asks<Rule> = SmallVec<[(Rule, Cost); 1]>;

/// Something to be done about one key.
pub(super) enum Work<Rule> {
    /// Spends all asks or none.
    Spend(Asks<Rule>),
    /// Tells how all would be answered; what a refusal writes is written.
    Try(Asks<Rule>),
    Look(Rule),
    Settle {
        rule: Rule,
        charge: Charge,
        actual: u64,
    },
    Reset,
}

impl<Rule> Work<Rule> {
    /// The rules whose states it is about.
    pub(super) fn rules(&self) -> SmallVec<[&Rule; 1]> {
        match self {
            Self::Spend(asks) | Self::Try(asks) => asks.iter().map(|(rule, _)| rule).collect(),
            Self::Look(rule) | Self::Settle { rule, .. } => SmallVec::from_iter([rule]),
            Self::Reset => SmallVec::new(),
        }
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) decisions: Decisions,
    /// How the asks of a [`Work::Try`] stand.
    pub(super) looks: Decisions,
}

/// Work, and who waits for it.
pub(super) struct Job<Rule> {
    pub(super) work: Work<Rule>,
    pub(super) reply: oneshot::Sender<Result<Told, Error>>,
    /// Races that it lost.
    pub(super) losses: u32,
    /// Until when it is tried; `None` before its turn.
    pub(super) until: Option<Instant>,
}

impl<Rule> Job<Rule> {
    pub(super) fn new(work: Work<Rule>, reply: oneshot::Sender<Result<Told, Error>>) -> Self {
        Self {
            work,
            reply,
            losses: 0,
            until: None,
        }
    }

    /// Whether it is done for somebody who waits; settlements and resets are done for themselves.
    pub(super) fn is_call(&self) -> bool {
        !matches!(self.work, Work::Settle { .. } | Work::Reset)
    }

    /// Whether nobody waits any more, so that nobody is charged.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_call() && self.reply.is_closed()
    }

    pub(super) fn answer(self, answer: Result<Told, Error>) {
        // Who does not listen any more need not know.
        let _ = self.reply.send(answer);
    }
}
