//! The call that blocks one key.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use super::{attempt::Attempt, counters::Counters};
use crate::{
    algorithm::{Algorithm, Block, Blockable},
    decision::Decisions,
    store::{Progress, Steps, StepsFuture, Store},
};

/// The future of a block.
pub(crate) type BlockFuture<Rule, S> = StepsFuture<Blockage<Rule, S>>;

/// Blocks one key, by one charge.
pub struct Blockage<Rule, S> {
    block: Block,
    attempt: Attempt,
    of: PhantomData<fn() -> (Rule, S)>,
}

impl<Rule, S> Blockage<Rule, S> {
    pub(super) fn new(block: Block, counters: &Arc<Counters>) -> Self {
        Self {
            block,
            attempt: Attempt::new(counters),
            of: PhantomData,
        }
    }

    /// Takes in the answer to the charge. Returns the time for which the key is blocked; `None` if it is not.
    pub(super) fn ended<E>(&mut self, answer: Result<Decisions, E>) -> Result<Option<Duration>, E> {
        let charged = answer?.as_slice().first().copied();
        // An undecided call is one of a store that failed, or had no room.
        Ok(charged
            .filter(|charged| !charged.is_undecided())
            .map(|charged| {
                if charged.is_admitted() {
                    self.attempt.succeed();
                    self.block.duration()
                } else {
                    self.attempt.skip();
                    charged.reset_after()
                }
            }))
    }
}

impl<Rule, S> fmt::Debug for Blockage<Rule, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blockage").finish_non_exhaustive()
    }
}

impl<Rule: Algorithm, S: Store<Blockable<Rule>>> Steps for Blockage<Rule, S> {
    type Answer = S::Answer;
    type Done = S::Done;
    type Output = Result<Option<Duration>, S::Error>;

    fn answered(&mut self, answer: Result<Decisions, S::Error>) -> Progress<Self> {
        Progress::Finished(self.ended(answer))
    }

    /// There is nothing to settle.
    fn done(&mut self, done: Result<(), S::Error>) -> Progress<Self> {
        Progress::Finished(done.map(|()| None))
    }
}
