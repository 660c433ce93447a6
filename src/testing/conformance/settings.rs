//! The settings of a suite.

use std::{future::Future, pin::Pin, time::Duration};

use super::Law;
use crate::time::ManualClock;

pub(super) type Sleep = Box<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()>>>>;

/// Everything about a suite but the store.
pub(super) struct Settings<R> {
    pub(super) rules: Vec<R>,
    pub(super) clock: Option<ManualClock>,
    pub(super) sleep: Option<Sleep>,
    pub(super) fault: Option<Box<dyn Fn(bool)>>,
    pub(super) left_out: Vec<Law>,
    pub(super) only: Option<Law>,
    pub(super) slack: Option<Slack>,
    pub(super) step: u64,
    pub(super) settles_back: bool,
    pub(super) repeats_deltas: bool,
    pub(super) seed: u64,
    pub(super) timelines: u64,
}

/// The error that a store may have, in units.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slack {
    pub(super) under: u64,
    pub(super) over: u64,
}

impl<R> Settings<R> {
    pub(super) fn new(rules: Vec<R>) -> Self {
        Self {
            rules,
            clock: None,
            sleep: None,
            fault: None,
            left_out: Vec::new(),
            only: None,
            slack: None,
            step: 1,
            settles_back: false,
            repeats_deltas: false,
            seed: 0,
            timelines: 32,
        }
    }

    /// Returns `true` if the law is not checked.
    pub(super) fn leaves_out(&self, law: Law) -> bool {
        self.left_out.contains(&law)
            || (law == Law::Fault && self.fault.is_none())
            || (self.slack.is_some() && !law.only_counts())
    }
}
