//! Rules by which a node may decide alone, and tell the store later.

use super::{
    Algorithm, All, AnyRule, Counted, CountedRule, FixedWindow, SlidingWindow, TokenBucket,
    any::Own,
};
use crate::{error::Error, quota::Quota, time::Timestamp};

/// A rule by which a node may decide alone, and tell the store later: [background
/// synchronisation](crate::store::StoreExt::synced).
///
/// Several units are told to the store as one [`Delta`](crate::store::driver::Delta), as if all had
/// been spent with the first of them. A bucket loses nothing by that, because it refills at the
/// same rate whatever the instants. Units of two windows, or of two slices of a window, are told
/// apart. Queues and warm-ups delay, a cascade or a marker tells classes apart, and a log knows the
/// instant of each call, so their units cannot be told together. Windows that begin with the first
/// call cannot either: the store does not know any more which call that was.
///
/// ```
/// use tollgate::{AnyRule, FixedWindow, Timestamp, TokenBucket, algorithm::Syncable};
///
/// let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
/// assert!(TokenBucket::per_minute(100).is_together(at(0), at(600)));
/// assert!(FixedWindow::per_minute(100).is_together(at(0), at(59)));
/// assert!(!FixedWindow::per_minute(100).is_together(at(0), at(60)));
/// assert_eq!(FixedWindow::per_minute(100).part_of(3)?, FixedWindow::per_minute(33));
///
/// let queue: AnyRule = "leaky-bucket 10/s queue=5".parse()?;
/// assert!(queue.check_sync().is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "units of the rule `{Self}` cannot be told to the store later",
    note = "background synchronisation is for `TokenBucket`, `FixedWindow`, `SlidingWindow`, pairs of them, `AnyRule` and `CountedRule`; for another rule leave \
            `.synced(…)` out, so that the store decides each call"
)]
pub trait Syncable: Algorithm + PartialEq {
    /// Checks that a node may decide by this rule alone.
    ///
    /// # Errors
    ///
    /// When units of this rule cannot be told together.
    fn check_sync(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns `true` if units of both instants may be told to the store as if all had been spent
    /// at the first.
    fn is_together(&self, first: Timestamp, later: Timestamp) -> bool;

    /// Returns `true` if nothing of a key is used at an instant, under any of the rules of which
    /// this one consists. A unit that is spent then is told apart from earlier ones: a bucket that
    /// was full did not refill meanwhile.
    fn is_at_rest(&self, state: Option<&Self::State>, at: Timestamp) -> bool {
        state.is_none_or(|state| self.forgettable_at(state) <= at)
    }

    /// Returns the part of one of so many nodes, by which it decides while the store cannot be
    /// reached. All parts together admit no more than the rule.
    ///
    /// # Errors
    ///
    /// When the limit is smaller than the number of nodes.
    fn part_of(&self, nodes: u64) -> Result<Self, Error>;

    /// Returns the units by which such a part begins, so that one of so many nodes has an equal
    /// part of what remains of a key; the most of the rules of which this one consists.
    fn used_of_part(
        &self,
        part: &Self,
        state: Option<&Self::State>,
        at: Timestamp,
        nodes: u64,
    ) -> u64 {
        let remains = |rule: &Self, state| rule.look(state, at).remaining().unwrap_or(0);
        remains(part, None).saturating_sub(remains(self, state) / nodes.max(1))
    }
}

impl Syncable for TokenBucket {
    fn is_together(&self, _: Timestamp, _: Timestamp) -> bool {
        true
    }

    fn part_of(&self, nodes: u64) -> Result<Self, Error> {
        self.try_scaled(1, nodes.max(1))
    }
}

/// Returns `true` if both instants are in the same slice. A rule without slices of the calendar
/// tells each instant apart.
fn is_in_one_slice(rule: &impl Counted, a: Timestamp, b: Timestamp) -> bool {
    rule.slicing()
        .map_or(a == b, |slicing| slicing.slice(a) == slicing.slice(b))
}

/// Returns the quota of one of so many nodes.
fn quota_part(quota: Quota, nodes: u64) -> Result<Quota, Error> {
    let amount = quota.amount() / nodes.max(1);
    if amount == 0 {
        return Err(Error::new(format!(
            "{} units among {nodes} nodes: expected a unit for each node at least; raise the limit, or let the store decide each call",
            quota.amount()
        )));
    }
    Quota::try_new(amount, quota.period())
}

impl Syncable for FixedWindow {
    fn check_sync(&self) -> Result<(), Error> {
        if self.is_from_first_call() {
            return Err(Error::new(format!(
                "`{self}` with background synchronisation: expected windows of the calendar, because the store does not know which call began a \
                 window; leave out the first call, or the synchronisation"
            )));
        }
        Ok(())
    }

    fn is_together(&self, first: Timestamp, later: Timestamp) -> bool {
        is_in_one_slice(self, first, later)
    }

    fn part_of(&self, nodes: u64) -> Result<Self, Error> {
        let part = Self::new(quota_part(self.quota(), nodes)?);
        if self.is_spread() {
            return part.try_spread();
        }
        self.fixed_offset()
            .map_or(Ok(part), |offset| part.try_offset(offset))
    }
}

impl Syncable for SlidingWindow {
    fn is_together(&self, first: Timestamp, later: Timestamp) -> bool {
        is_in_one_slice(self, first, later)
    }

    fn part_of(&self, nodes: u64) -> Result<Self, Error> {
        Self::new(quota_part(self.quota(), nodes)?).try_slices(self.slice_count())
    }
}

impl<A: Syncable, B: Syncable> Syncable for (A, B) {
    fn check_sync(&self) -> Result<(), Error> {
        self.0.check_sync().and_then(|()| self.1.check_sync())
    }

    fn is_together(&self, first: Timestamp, later: Timestamp) -> bool {
        self.0.is_together(first, later) && self.1.is_together(first, later)
    }

    fn is_at_rest(&self, state: Option<&Self::State>, at: Timestamp) -> bool {
        let (a, b) = match state {
            Some((a, b)) => (a.as_ref(), b.as_ref()),
            None => (None, None),
        };
        self.0.is_at_rest(a, at) || self.1.is_at_rest(b, at)
    }

    fn part_of(&self, nodes: u64) -> Result<Self, Error> {
        Ok((self.0.part_of(nodes)?, self.1.part_of(nodes)?))
    }

    fn used_of_part(
        &self,
        part: &Self,
        state: Option<&Self::State>,
        at: Timestamp,
        nodes: u64,
    ) -> u64 {
        let (a, b) = match state {
            Some((a, b)) => (a.as_ref(), b.as_ref()),
            None => (None, None),
        };
        let first = self.0.used_of_part(&part.0, a, at, nodes);
        first.max(self.1.used_of_part(&part.1, b, at, nodes))
    }
}

/// Does something with a rule whose units can be told together, or something else.
macro_rules! syncable {
    ($any:expr, $rule:ident => $value:expr, $other:ident => $otherwise:expr) => {
        match $any {
            AnyRule::TokenBucket($rule) => $value,
            AnyRule::FixedWindow($rule) => $value,
            AnyRule::SlidingWindow($rule) => $value,
            AnyRule::All($rule) => $value,
            $other => $otherwise,
        }
    };
}

fn cannot_be_synced(rule: &AnyRule) -> Error {
    Error::new(format!(
        "`{rule}` with background synchronisation: expected a token bucket, fixed or sliding windows, or several of them; choose one of those, or \
         leave the synchronisation out, so that the store decides each call"
    ))
}

impl Syncable for AnyRule {
    fn check_sync(&self) -> Result<(), Error> {
        syncable!(self, rule => rule.check_sync(), other => Err(cannot_be_synced(other)))
    }

    fn is_together(&self, first: Timestamp, later: Timestamp) -> bool {
        syncable!(self, rule => rule.is_together(first, later), _other => first == later)
    }

    fn is_at_rest(&self, state: Option<&Self::State>, at: Timestamp) -> bool {
        syncable!(self, rule => rule.is_at_rest(state.and_then(Own::in_any), at), _other => true)
    }

    fn part_of(&self, nodes: u64) -> Result<Self, Error> {
        syncable!(self, rule => rule.part_of(nodes).map(Self::from), other => Err(cannot_be_synced(other)))
    }

    fn used_of_part(
        &self,
        part: &Self,
        state: Option<&Self::State>,
        at: Timestamp,
        nodes: u64,
    ) -> u64 {
        match (self, part) {
            (Self::TokenBucket(rule), Self::TokenBucket(part)) => {
                rule.used_of_part(part, state.and_then(Own::in_any), at, nodes)
            }
            (Self::FixedWindow(rule), Self::FixedWindow(part)) => {
                rule.used_of_part(part, state.and_then(Own::in_any), at, nodes)
            }
            (Self::SlidingWindow(rule), Self::SlidingWindow(part)) => {
                rule.used_of_part(part, state.and_then(Own::in_any), at, nodes)
            }
            (Self::All(rule), Self::All(part)) => {
                rule.used_of_part(part, state.and_then(Own::in_any), at, nodes)
            }
            // No part of this rule: nothing of it is left.
            _ => u64::MAX,
        }
    }
}

impl Syncable for CountedRule {
    fn check_sync(&self) -> Result<(), Error> {
        self.as_any().check_sync()
    }

    fn is_together(&self, first: Timestamp, later: Timestamp) -> bool {
        self.as_any().is_together(first, later)
    }

    fn is_at_rest(&self, state: Option<&Self::State>, at: Timestamp) -> bool {
        self.as_any().is_at_rest(state, at)
    }

    fn part_of(&self, nodes: u64) -> Result<Self, Error> {
        self.as_any().part_of(nodes).and_then(Self::try_from)
    }
}

impl Syncable for All {
    fn check_sync(&self) -> Result<(), Error> {
        self.rules().iter().try_for_each(Syncable::check_sync)
    }

    fn is_together(&self, first: Timestamp, later: Timestamp) -> bool {
        let mut rules = self.rules().iter();
        rules.all(|rule| rule.is_together(first, later))
    }

    fn is_at_rest(&self, state: Option<&Self::State>, at: Timestamp) -> bool {
        let mut rules = self.rules().iter().enumerate();
        let state_of = |n: usize| state.and_then(|states| states.get(n)?.as_ref());
        rules.any(|(n, rule)| rule.is_at_rest(state_of(n), at))
    }

    fn part_of(&self, nodes: u64) -> Result<Self, Error> {
        let parts = self.rules().iter().map(|rule| rule.part_of(nodes));
        parts.collect::<Result<_, _>>().map(Self)
    }

    fn used_of_part(
        &self,
        part: &Self,
        state: Option<&Self::State>,
        at: Timestamp,
        nodes: u64,
    ) -> u64 {
        let rules = self.rules().iter().zip(part.rules()).enumerate();
        let used = rules.map(|(n, (rule, part))| {
            let state = state.and_then(|states| states.get(n)?.as_ref());
            rule.used_of_part(part, state, at, nodes)
        });
        used.max().unwrap_or(0)
    }
}
