//! The outcomes of the calls.

use std::sync::Mutex;

use tollgate::Timestamp;

use crate::timeline::{Instant, lock};

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Admitted,
    Refused,
    /// The store did not answer.
    Failed,
}

/// A call that was answered, or failed.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Calls are numbered in the order in which they come.
    pub number: u64,
    pub key: u64,
    pub node: usize,
    pub outcome: Outcome,
    /// When it came, and when it was answered, in nanoseconds.
    pub came: Instant,
    pub answered: Instant,
    /// When its unit counts, by an exact clock. A unit that was here counts at the answer; one that
    /// the call has got from the store counts at the instant at which the store granted it.
    pub counts_at: Timestamp,
}

/// The calls of a run.
#[derive(Default)]
pub(crate) struct Record {
    calls: Mutex<Vec<Call>>,
}

impl Record {
    pub(crate) fn add(&self, call: Call) {
        lock(&self.calls).push(call);
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.calls).len()
    }

    /// Returns the calls in the order in which they came.
    pub(crate) fn take(&self) -> Vec<Call> {
        let mut calls = std::mem::take(&mut *lock(&self.calls));
        calls.sort_by_key(|call| call.number);
        calls
    }
}
