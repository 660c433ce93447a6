//! The counters of a key and their names.

use std::{
    io::Write,
    ops::{Range, RangeInclusive},
    time::Duration,
};

use crate::{
    algorithm::{Counted, Slicing},
    decision::Cost,
    error::Error,
    key::Key,
    policy::Policy,
    store::ask::key_name,
    time::Timestamp,
};

/// The counters of a client under a policy, for one slicing of time.
pub(super) struct CounterSet {
    /// The names of its counters without the number of the slice.
    stem: Vec<u8>,
    pub(super) slicing: Slicing,
}

/// An ask that outlives its call.
pub(super) struct CounterAsk<Rule> {
    pub(super) place: CounterSet,
    /// The rule as the key meets it.
    pub(super) rule: Rule,
    pub(super) cost: Cost,
    /// The units that are added at first: the cost, or more if more may be granted.
    pub(super) added: u64,
    /// The hash of the stem, for the [hints](super::hints).
    pub(super) hash: u64,
}

/// The slices that are read for a call, the newest first.
#[derive(Clone, Copy)]
pub(super) struct Slices {
    newest: u64,
    /// The slice that the call counts in.
    pub(super) own: u64,
    oldest: u64,
}

impl CounterSet {
    /// # Errors
    ///
    /// Fails if counters cannot run the rule.
    pub(super) fn of<Rule: Counted>(
        prefix: &str,
        policy: &Policy,
        key: &Key,
        rule: &Rule,
    ) -> Result<Self, Error> {
        let slicing = rule.slicing()?;
        let mut stem = Vec::from(key_name(prefix, policy, key));
        // Writing to memory does not fail.
        let _ = write!(stem, ":{slicing}@");
        Ok(Self { stem, slicing })
    }

    /// Returns the name of the counter of a slice.
    pub(super) fn counter(&self, slice: u64) -> Box<[u8]> {
        // Allocated at its final length: a call does little else here.
        let mut digits = itoa::Buffer::new();
        [&self.stem, digits.format(slice).as_bytes()]
            .concat()
            .into()
    }

    /// Returns the part of the names that identifies the set.
    pub(super) fn stem(&self) -> &[u8] {
        &self.stem
    }

    /// The slices that matter at an instant, and for windows that slide those ahead that may have begun for another
    /// host, whose clock may be so much ahead.
    pub(super) fn slices(&self, now: Timestamp, apart: Duration) -> Slices {
        let own = self.slicing.slice(now);
        Slices {
            newest: self.latest(own, now, apart),
            own,
            oldest: own.saturating_sub(self.slicing.older()),
        }
    }

    /// The slices that matter at an instant to hosts whose clocks are so far apart: a window at most before and after those
    /// that matter to this one.
    pub(super) fn all(&self, now: Timestamp, apart: Duration) -> RangeInclusive<u64> {
        let own = self.slicing.slice(now);
        let window = self.slicing.older().max(1);
        let apart = u64::try_from(apart.as_nanos()).unwrap_or(u64::MAX);
        let nanos = now.as_nanos();
        let at = |nanos| self.slicing.slice(Timestamp::from_nanos(nanos));
        let first = at(nanos.saturating_sub(apart)).max(own.saturating_sub(window));
        let last = at(nanos.saturating_add(apart)).min(own.saturating_add(window));
        first.saturating_sub(self.slicing.older())..=last
    }

    /// The latest slice that a call in slice `own` has to see, at an instant that may be later: none where each window is
    /// counted alone, and at most a window ahead.
    pub(super) fn latest(&self, own: u64, now: Timestamp, apart: Duration) -> u64 {
        let begun = self.slicing.slice(now.saturating_add(apart));
        begun.clamp(own, own.saturating_add(self.slicing.older()))
    }
}

impl Slices {
    /// Returns their numbers, the newest first.
    pub(super) fn numbers(self) -> impl Iterator<Item = u64> {
        (self.oldest..=self.newest).rev()
    }

    /// Returns the slice `index` before the newest.
    pub(super) fn nth(self, index: usize) -> u64 {
        self.newest.saturating_sub(index as u64)
    }

    /// Returns the number of slices ahead of the call's own.
    pub(super) fn ahead(self) -> usize {
        (self.newest - self.own) as usize
    }

    pub(super) fn len(self) -> usize {
        (self.newest - self.oldest) as usize + 1
    }

    /// Extends the slices up to a newer one, and returns the slices that were added.
    pub(super) fn extend(&mut self, newest: u64) -> Range<u64> {
        let from = self.newest + 1;
        self.newest = self.newest.max(newest);
        from..self.newest + 1
    }
}
