//! Leases and background synchronisation of the rule. Blocks pass both, as they are.

use std::time::Duration;

use super::{Blockable, BlockableState};
use crate::{
    algorithm::{Leasable, Syncable, Validity},
    decision::Decision,
    error::Error,
    time::Timestamp,
};

impl<Rule: Leasable> Leasable for Blockable<Rule> {
    fn usual_hold(&self) -> Duration {
        match self {
            Self::Rule(rule) => rule.usual_hold(),
            Self::Block(_) => Duration::ZERO,
        }
    }

    fn held(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        match self {
            Self::Rule(rule) => rule.held(hold, max_cost).map(Self::Rule),
            Self::Block(block) => Ok(Self::Block(*block)),
        }
    }

    fn validity(&self, granted: &Decision, hold: Duration) -> Validity {
        match self {
            Self::Rule(rule) => rule.validity(granted, hold),
            Self::Block(_) => Validity::together(Duration::ZERO),
        }
    }

    fn held_in_pair(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        match self {
            Self::Rule(rule) => rule.held_in_pair(hold, max_cost).map(Self::Rule),
            Self::Block(block) => Ok(Self::Block(*block)),
        }
    }
}

impl<Rule: Syncable> Syncable for Blockable<Rule> {
    fn check_sync(&self) -> Result<(), Error> {
        match self {
            Self::Rule(rule) => rule.check_sync(),
            Self::Block(_) => Ok(()),
        }
    }

    fn is_together(&self, first: Timestamp, later: Timestamp) -> bool {
        match self {
            Self::Rule(rule) => rule.is_together(first, later),
            Self::Block(_) => first == later,
        }
    }

    fn is_at_rest(&self, state: Option<&Self::State>, at: Timestamp) -> bool {
        match self {
            Self::Rule(rule) => rule.is_at_rest(state.and_then(BlockableState::rule), at),
            Self::Block(_) => true,
        }
    }

    fn part_of(&self, nodes: u64) -> Result<Self, Error> {
        match self {
            Self::Rule(rule) => rule.part_of(nodes).map(Self::Rule),
            Self::Block(block) => Ok(Self::Block(*block)),
        }
    }

    fn used_of_part(
        &self,
        part: &Self,
        state: Option<&Self::State>,
        at: Timestamp,
        nodes: u64,
    ) -> u64 {
        match (self, part) {
            (Self::Rule(rule), Self::Rule(part)) => {
                rule.used_of_part(part, state.and_then(BlockableState::rule), at, nodes)
            }
            // No part of this rule: nothing of it is left.
            _ => u64::MAX,
        }
    }
}
