//! A job: work on one key, and its caller.

use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};

use super::sync::{OwnedDelta, PulledBytes};
use crate::{
    decision::Charge,
    store::{Error, Spend, engine::Answers},
};

/// Asks about one key: the rule as the key meets it, and what to spend.
pub(super) type Asks<Rule> = SmallVec<[(Rule, Spend); 1]>;

/// Work on the states of one key.
pub(super) enum Work<Rule> {
    /// Spends all asks, or none.
    Spend(Asks<Rule>),
    /// Answers as [`Spend`](Self::Spend) does and spends nothing; what a refusal writes is written.
    Probe(Asks<Rule>),
    Look(Rule),
    Settle {
        rule: Rule,
        charge: Charge,
        actual: u64,
    },
    /// Adds what nodes admitted by themselves, and tells the states.
    Sync {
        deltas: Vec<OwnedDelta<Rule>>,
        pulled: PulledBytes,
        /// `true` if the call is about other keys, too.
        has_others: bool,
    },
    Reset,
}

impl<Rule> Work<Rule> {
    /// Returns the rules whose states the work is about.
    pub(super) fn rules(&self) -> SmallVec<[&Rule; 1]> {
        match self {
            Self::Spend(asks) | Self::Probe(asks) => asks.iter().map(|(rule, _)| rule).collect(),
            Self::Look(rule) | Self::Settle { rule, .. } => SmallVec::from_iter([rule]),
            Self::Sync { deltas, .. } => deltas.iter().map(|delta| &delta.rule).collect(),
            Self::Reset => SmallVec::new(),
        }
    }
}

/// The most races that deltas may lose while those of other keys wait for their answer, and nodes tell them again a little later anyway. With the
/// default back-off so many attempts wait for 63 ms at most.
const ATTEMPTS_BESIDE_OTHERS: u32 = 7;

/// Work and its caller.
pub(super) struct Job<Rule> {
    pub(super) work: Work<Rule>,
    pub(super) reply: oneshot::Sender<Result<Answers, Error>>,
    /// The number of races that it lost.
    pub(super) losses: u32,
    /// The deadline; `None` before its first attempt.
    pub(super) until: Option<Instant>,
}

impl<Rule> Job<Rule> {
    pub(super) fn new(work: Work<Rule>, reply: oneshot::Sender<Result<Answers, Error>>) -> Self {
        Self {
            work,
            reply,
            losses: 0,
            until: None,
        }
    }

    /// Returns the number of races that the work may lose, of those that a call may.
    pub(super) fn attempts(&self, of_call: u32) -> u32 {
        match self.work {
            Work::Sync {
                has_others: true, ..
            } => of_call.min(ATTEMPTS_BESIDE_OTHERS),
            _ => of_call,
        }
    }

    /// Returns `true` if the work is for a caller that waits. Settlements and resets are done in any case.
    pub(super) fn is_call(&self) -> bool {
        !matches!(self.work, Work::Settle { .. } | Work::Reset)
    }

    /// Returns `true` if the caller no longer waits, so that it must not be charged.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_call() && self.reply.is_closed()
    }

    pub(super) fn answer(self, answer: Result<Answers, Error>) {
        // A caller that no longer waits needs no answer.
        let _ = self.reply.send(answer);
    }
}
