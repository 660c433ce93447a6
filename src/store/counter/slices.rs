//! The counters of a key, one for each slice of time; their totals, and the decision that follows.
//!
//! `Increment` returns no time: the counter's name contains the window, so the time must be known
//! before the store is called. Windows are those of the calendar.

use std::{
    hash::BuildHasher,
    io::Write,
    ops::{Range, RangeInclusive},
    sync::RwLock,
    time::Duration,
};

use foldhash::quality::RandomState;

use crate::{
    algorithm::{Counted, Slicing, slicing_for_keys},
    decision::{Cost, Decision},
    error::Error,
    key::Key,
    locks,
    policy::Policy,
    store::{ask::ResolvedAsk, names::key_name},
    time::Timestamp,
};

/// The counters of a client under a policy, for one slicing of time.
pub(super) struct CounterSet {
    /// Names of its counters, without the number of the slice.
    stem: Vec<u8>,
    pub(super) slicing: Slicing,
    /// Hash of the stem, by which refusals are found.
    pub(super) hash: u64,
}

pub(super) type CounterAsk<Rule> = ResolvedAsk<Rule, CounterSet>;

/// Slices that are read for a call, the newest first.
#[derive(Clone, Copy)]
pub(super) struct CallSlices {
    newest: u64,
    /// The slice that the call counts in.
    pub(super) own: u64,
    oldest: u64,
}

impl CounterSet {
    /// Returns the counters of a key under a rule.
    ///
    /// # Errors
    ///
    /// Fails if counters cannot run the rule.
    pub(super) fn of<Rule: Counted>(
        prefix: &str,
        policy: &Policy,
        key: &Key,
        rule: &Rule,
        hasher: &RandomState,
    ) -> Result<Self, Error> {
        let slicing = rule.slicing()?;
        let mut stem = Vec::from(key_name(prefix, policy, key));
        // Writing to memory does not fail.
        let _ = write!(stem, ":{slicing}@");
        let hash = hasher.hash_one(&stem);
        Ok(Self {
            stem,
            slicing,
            hash,
        })
    }

    /// Returns the name of the counter of a slice.
    pub(super) fn counter(&self, slice: u64) -> Box<[u8]> {
        // Allocated at its final length: a call does little else here.
        let mut digits = itoa::Buffer::new();
        [&self.stem, digits.format(slice).as_bytes()]
            .concat()
            .into()
    }

    /// Returns the slices that matter at an instant. For a sliding window, they include slices that
    /// may have begun for a host whose clock is up to `apart` ahead.
    pub(super) fn slices(&self, now: Timestamp, apart: Duration) -> CallSlices {
        let own = self.slicing.slice(now);
        CallSlices {
            newest: self.latest(own, now, apart),
            own,
            oldest: own.saturating_sub(self.slicing.older()),
        }
    }

    /// Returns the slices that matter at an instant to any host whose clock differs by up to
    /// `apart`: at most a window before and after those that matter to this host.
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

    /// Returns the latest slice that a call in slice `own` must read at the instant `now`, which
    /// may be later: at most a window ahead, and `own` itself if each window is counted alone.
    pub(super) fn latest(&self, own: u64, now: Timestamp, apart: Duration) -> u64 {
        let begun = self.slicing.slice(now.saturating_add(apart));
        begun.clamp(own, own.saturating_add(self.slicing.older()))
    }
}

impl CallSlices {
    /// Returns their numbers, the newest first.
    pub(super) fn numbers(self) -> impl Iterator<Item = u64> {
        (self.oldest..=self.newest).rev()
    }

    /// Returns the slice `index` before the newest.
    fn nth(self, index: usize) -> u64 {
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

/// Totals of the slices of a call, without its own addition.
pub(super) struct SliceTotals {
    pub(super) now: Timestamp,
    pub(super) slices: CallSlices,
    /// Total of each slice, the newest first.
    pub(super) totals: Vec<u64>,
}

impl SliceTotals {
    /// Returns the state of the key for its rule.
    ///
    /// A slice ahead in which something is counted has begun for some host: time then stands at its
    /// beginning for this key, until the clock of this host has caught up.
    pub(super) fn state<Rule: Counted>(
        &self,
        rule: &Rule,
        set: &CounterSet,
    ) -> Option<Rule::State> {
        let ahead = self.slices.ahead();
        let begun = self.totals.iter().take(ahead).position(|total| *total > 0);
        let (first, at) = match begun {
            Some(first) => (first, set.slicing.begin(self.slices.nth(first))),
            None => (ahead, self.now),
        };
        let totals = self.totals.get(first..).unwrap_or_default();
        rule.state_of_totals(totals, at)
    }

    /// Returns the units that a call spends of those that it `added`, if the cost passes.
    pub(super) fn granted<Rule: Counted>(&self, ask: &CounterAsk<Rule>, added: u64) -> Cost {
        let cost = ask.spend.cost();
        if added == cost.get() {
            return cost;
        }
        let remaining = self.look(ask).remaining().unwrap_or(0);
        Cost::new(added.min(remaining).max(cost.get())).unwrap_or(cost)
    }

    /// Returns the decision on a call that spends `cost`.
    pub(super) fn step<Rule: Counted>(&self, ask: &CounterAsk<Rule>, cost: Cost) -> Decision {
        let mut state = self.state(&ask.rule, &ask.at);
        ask.rule.step(&mut state, self.now, cost).decision()
    }

    /// Returns the decision on a look.
    pub(super) fn look<Rule: Counted>(&self, ask: &CounterAsk<Rule>) -> Decision {
        let state = self.state(&ask.rule, &ask.at);
        ask.rule.look(state.as_ref(), self.now)
    }

    /// Returns the decision on an ask if another ask of the call may be refused: a refusal, or a
    /// look if this ask would pass.
    pub(super) fn step_or_look<Rule: Counted>(&self, ask: &CounterAsk<Rule>) -> Decision {
        let step = self.step(ask, ask.spend.cost());
        if step.is_admitted() {
            self.look(ask)
        } else {
            step
        }
    }
}

/// The most slicings that a store remembers.
const MOST: usize = 64;

/// One rule for each slicing that calls have used, because a reset names no rule. One slicing more
/// than [`MOST`] stands for all that are not known.
pub(super) struct KnownSlicings<Rule>(RwLock<Vec<(Slicing, Rule)>>);

impl<Rule: Counted> KnownSlicings<Rule> {
    pub(super) fn new() -> Self {
        Self(RwLock::default())
    }

    /// Remembers a rule if its slicing is new.
    ///
    /// # Errors
    ///
    /// Fails if counters cannot run the rule.
    pub(super) fn learn(&self, rule: &Rule) -> Result<(), Error> {
        let slicing = slicing_for_keys(rule)?;
        let is_it = |known: &(Slicing, Rule)| known.0 == slicing;
        // No panic leaves the list half written.
        let known = locks::read(&self.0);
        if known.iter().any(is_it) {
            return Ok(());
        }
        drop(known);
        let mut known = locks::write(&self.0);
        if known.len() <= MOST && !known.iter().any(is_it) {
            known.push((slicing, rule.clone()));
        }
        Ok(())
    }

    /// Returns the value of `of` for each rule.
    ///
    /// # Errors
    ///
    /// Fails if no rule is known, or not all of them are.
    pub(super) fn each<T>(&self, of: impl Fn(&Rule) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        let known = locks::read(&self.0);
        if known.len() > MOST {
            return Err(Error::new(format!(
                "this store was asked for more than {MOST} different windows, and does not know all counters of a key: \
                 expected fewer; give each kind of limit a store of its own"
            )));
        }
        if known.is_empty() {
            return Err(Error::new(
                "this store was asked for no rule yet, and does not know the counters of a key: expected one; give it the \
                 rules by `CounterStore::learn`",
            ));
        }
        known.iter().map(|(_, rule)| of(rule)).collect()
    }
}
