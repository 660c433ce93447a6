//! The settings of a store of counters.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    Counters, Increment, hints::Hints, inner::Inner, known_slicings::KnownSlicings, stats::Counts,
};
use crate::{
    algorithm::Counted,
    store::engine::{MonotoneClock, Unsettled},
    time::{Clock, SystemClock},
};

/// Builds a [`Counters`] store.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{SlidingWindow, store::{Counters, CountersBuilder, Increment}};
///
/// fn shop(cache: impl Increment) -> Counters<impl Increment, SlidingWindow> {
///     CountersBuilder::new(cache)
///         .prefix("shop")
///         .clocks_apart(Duration::from_millis(50))
///         .build()
/// }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct CountersBuilder<I, K = SystemClock> {
    increment: I,
    prefix: Box<str>,
    apart: Duration,
    clock: K,
}

impl<I: Increment> CountersBuilder<I> {
    /// Creates a builder with the defaults: the prefix `tollgate`, and the system's clock, within a second of other hosts'.
    pub fn new(increment: I) -> Self {
        Self {
            increment,
            prefix: "tollgate".into(),
            apart: Duration::from_secs(1),
            clock: SystemClock::default(),
        }
    }
}

impl<I: Increment, K: Clock> CountersBuilder<I, K> {
    /// Sets the prefix of all counters; `tollgate` by default.
    pub fn prefix(self, prefix: &str) -> Self {
        Self {
            prefix: prefix.into(),
            ..self
        }
    }

    /// Sets the greatest difference between the clocks of two hosts that share the counters; a second by default.
    ///
    /// Counters are kept longer by this time. This long before the end of a slice, calls under a sliding window read one more.
    pub fn clocks_apart(self, apart: Duration) -> Self {
        Self { apart, ..self }
    }

    /// Sets the clock, which determines the slice that a call counts in.
    ///
    /// If it steps back, the store's time stands still until it has caught up.
    pub fn clock<C: Clock>(self, clock: C) -> CountersBuilder<I, C> {
        CountersBuilder {
            increment: self.increment,
            prefix: self.prefix,
            apart: self.apart,
            clock,
        }
    }

    /// Builds the store.
    pub fn build<Rule: Counted>(self) -> Counters<I, Rule, K> {
        Counters {
            inner: Arc::new(Inner {
                increment: self.increment,
                prefix: self.prefix,
                apart: self.apart,
                clock: MonotoneClock::new(self.clock),
                hints: Hints::new(),
                known: KnownSlicings::new(),
                counts: Counts::default(),
                unsettled: Unsettled::default(),
            }),
        }
    }
}

impl<I, K> fmt::Debug for CountersBuilder<I, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountersBuilder")
            .field("prefix", &self.prefix)
            .field("clocks_apart", &self.apart)
            .finish_non_exhaustive()
    }
}
