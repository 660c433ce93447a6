//! An observer that finds the keys that are refused most.

use std::{sync::Arc, time::Duration};

use super::{Event, Observer, TopKeys};
use crate::{decision::Decision, key::Key};

/// Finds the keys that are refused most, and those that are nearly refused most.
///
/// A request is nearly refused if a limit admits or delays it and less than a [share](Self::nearly_below) of that limit remains, 10 %
/// by default. Such clients are about to be refused, or use just what they may.
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::observe::{Event, Observer, TopRefused};
/// use tollgate::store::{Ask, Local};
///
/// let top = TopRefused::new(1_000).labelled_by(|key| format!("{key:?}"));
/// // A layer makes these calls.
/// let (store, policy, rule) = (Local::new(), Policy::new("api"), TokenBucket::per_hour(20));
/// for _ in 0..50 {
///     let key = "alice".into();
///     let decision = store.decide(&Ask::new(&policy, &rule, key, Cost::ONE));
///     let event = Event::new(&policy, &key, &decision);
///     if decision.is_admitted() { top.admitted(&event) } else { top.refused(&event) }
/// }
///
/// assert_eq!(top.most_refused().top(10)[0].count(), 30);
/// // 1 and 0 of 20 requests remained.
/// assert_eq!(top.most_nearly_refused().top(10)[0].count(), 2);
/// ```
///
/// # Several limits
///
/// The keys of all limits that it observes are in one list. To tell limits apart, give each layer an observer of its own, or forward
/// the events of one [policy](Event::policy). Limits on a dry run refuse nobody, so their decisions are not recorded. Undecided
/// requests, and those without a key, are not recorded either.
///
/// # Cost
///
/// Refused and nearly refused requests cost one [record](TopKeys#cost) each. All others compute `remaining`, which takes a division
/// for most rules, and no lock.
#[derive(Debug)]
pub struct TopRefused {
    refused: TopKeys,
    nearly: TopKeys,
    percent: u8,
}

impl TopRefused {
    /// Creates an observer that keeps up to `capacity` keys of each kind, at most [`TopKeys::MAX_CAPACITY`].
    pub fn new(capacity: usize) -> Self {
        Self {
            refused: TopKeys::new(capacity),
            nearly: TopKeys::new(capacity),
            percent: 10,
        }
    }

    /// Sets the share of a limit, in per cent, below which an admitted request is nearly refused; 10 by default.
    ///
    /// With 0 none is.
    #[must_use]
    pub fn nearly_below(self, percent: u8) -> Self {
        Self { percent, ..self }
    }

    /// Sets the function that returns the [text of a key](TopKeys#labels) for people; the digest by default.
    #[must_use]
    pub fn labelled_by(self, label: impl Fn(&Key) -> String + Send + Sync + 'static) -> Self {
        let label: Arc<super::top_keys::Label> = Arc::new(label);
        Self {
            refused: self.refused.with_label(Arc::clone(&label)),
            nearly: self.nearly.with_label(label),
            ..self
        }
    }

    /// Returns the keys of refused requests, counted by request.
    pub fn most_refused(&self) -> &TopKeys {
        &self.refused
    }

    /// Returns the keys of nearly refused requests, counted by request.
    pub fn most_nearly_refused(&self) -> &TopKeys {
        &self.nearly
    }

    #[inline]
    fn passed(&self, event: &Event<'_>) {
        if self.is_near(event.decision()) {
            self.nearly.record(event.key());
        }
    }

    fn is_near(&self, decision: &Decision) -> bool {
        let numbers = decision.remaining().zip(decision.limit());
        self.percent > 0
            && numbers.is_some_and(|(remaining, limit)| {
                u128::from(remaining) * 100 < u128::from(limit) * u128::from(self.percent)
            })
    }
}

impl Observer for TopRefused {
    #[inline]
    fn admitted(&self, event: &Event<'_>) {
        self.passed(event);
    }

    #[inline]
    fn delayed(&self, event: &Event<'_>, _: Duration) {
        self.passed(event);
    }

    #[inline]
    fn refused(&self, event: &Event<'_>) {
        self.refused.record(event.key());
    }
}
