//! Counts admitted and refused requests, and the waits of a client that obeys `retry_after`.

use std::{collections::HashMap, time::Duration};

use foldhash::fast::RandomState;
use tollgate::Timestamp;

use crate::engine::answer::{Answer, Verdict};

/// The counts of requests of one key, or of all.
#[derive(Clone, Default)]
pub(crate) struct Tally {
    pub(crate) admitted: u64,
    pub(crate) delayed: u64,
    pub(crate) refused: u64,
    /// The instants of the first refusal and of the last one.
    pub(crate) refusals: Option<(Timestamp, Timestamp)>,
    pub(crate) retries: Waits,
    pub(crate) delays: Waits,
}

/// The total and the maximum of waits.
#[derive(Clone, Copy, Default)]
pub(crate) struct Waits {
    pub(crate) longest: Duration,
    /// In nanoseconds.
    pub(crate) together: u128,
}

/// The tallies of all keys.
#[derive(Default)]
pub(crate) struct Tallies {
    pub(crate) total: Tally,
    by_key: HashMap<Box<[u8]>, Tally, RandomState>,
    /// The maximum number of keys, if there is one.
    most: Option<usize>,
    /// Refusals of keys without room.
    pub(crate) unlisted: u64,
}

impl Tally {
    fn add(&mut self, at: Timestamp, answer: &Answer) {
        match answer.verdict {
            Verdict::Allow => self.admitted += 1,
            Verdict::Delay => {
                self.delayed += 1;
                self.delays.add(answer.delay);
            }
            Verdict::Deny => {
                self.refused += 1;
                let (first, last) = self.refusals.unwrap_or((at, at));
                self.refusals = Some((first.min(at), last.max(at)));
                self.retries.add(answer.retry_after);
            }
        }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.admitted + self.delayed + self.refused
    }
}

impl Waits {
    fn add(&mut self, wait: Option<Duration>) {
        let wait = wait.unwrap_or_default();
        self.longest = self.longest.max(wait);
        self.together = self.together.saturating_add(wait.as_nanos());
    }
}

impl Tallies {
    pub(crate) fn new(most: Option<usize>) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, key: &[u8], at: Timestamp, answer: &Answer) {
        self.total.add(at, answer);
        if let Some(tally) = self.by_key.get_mut(key) {
            tally.add(at, answer);
        } else if self.most.is_none_or(|most| self.by_key.len() < most) {
            self.by_key.entry(key.into()).or_default().add(at, answer);
        } else {
            self.unlisted += u64::from(answer.verdict == Verdict::Deny);
        }
    }

    /// Returns the keys with refusals, the most refused first.
    pub(crate) fn refused(&self) -> Vec<(&[u8], &Tally)> {
        let mut refused: Vec<_> = self
            .by_key
            .iter()
            .filter(|(_, tally)| tally.refused > 0)
            .map(|(key, tally)| (&**key, tally))
            .collect();
        refused.sort_unstable_by(|(a_key, a), (b_key, b)| {
            b.refused.cmp(&a.refused).then_with(|| a_key.cmp(b_key))
        });
        refused
    }
}
