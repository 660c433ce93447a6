//! The settings of blocks after refusals.

use std::time::Duration;

use crate::{
    algorithm::{Block, SlidingLog},
    error::Error,
    quota::Quota,
};

/// The most refusals after which a key can be blocked: each is remembered for the period.
const MOST_REFUSALS: u64 = 1000;

/// When a key is blocked because of its refusals.
#[derive(Clone, Copy, Debug)]
pub(super) struct AfterRefusals {
    pub(super) rule: SlidingLog,
    pub(super) block: Block,
}

impl AfterRefusals {
    pub(super) fn new(refusals: u64, period: Duration, duration: Duration) -> Result<Self, Error> {
        let block = Block::try_new(duration)?.of_new_key();
        if !(1..=MOST_REFUSALS).contains(&refusals) {
            return Err(Error::new(format!(
                "a block after {refusals} refusals: expected 1 to {MOST_REFUSALS}, each of which is remembered; choose a number \
                 between them"
            )));
        }
        let quota = Quota::try_new(refusals, period)?;
        let rule = SlidingLog::new(quota);
        Ok(Self { rule, block })
    }
}
