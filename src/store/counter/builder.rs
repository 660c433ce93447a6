//! The settings of a store of counters.

use std::{fmt, sync::Arc, sync::atomic::AtomicU64, time::Duration};

use super::{Counters, Increment, hints::Hints, inner::Inner, known::Known, stats::Counts};
use crate::{
    algorithm::Counted,
    time::{Clock, SystemClock},
};

/// Builds a store of counters.
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
pub struct CountersBuilder<I, K = SystemClock> {
    increment: I,
    prefix: Box<str>,
    apart: Duration,
    clock: K,
}

impl<I: Increment> CountersBuilder<I> {
    /// A store whose counters begin with `tollgate`, by the system's clock, which is within a second of other hosts'.
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
    /// What the names of its counters begin with.
    #[must_use]
    pub fn prefix(self, prefix: &str) -> Self {
        Self {
            prefix: prefix.into(),
            ..self
        }
    }

    /// How far apart the clocks of two hosts may be that share the counters: a second unless it is set.
    ///
    /// Counters are kept so much longer. So long before the end of a slice, calls under a sliding window read one more.
    #[must_use]
    pub fn clocks_apart(self, apart: Duration) -> Self {
        Self { apart, ..self }
    }

    /// What tells the time, and so which slice a call counts in.
    ///
    /// Where it steps back, the store's time stands still until it has caught up.
    #[must_use]
    pub fn clock<C: Clock>(self, clock: C) -> CountersBuilder<I, C> {
        CountersBuilder {
            increment: self.increment,
            prefix: self.prefix,
            apart: self.apart,
            clock,
        }
    }

    /// The store.
    pub fn build<Rule: Counted>(self) -> Counters<I, Rule, K> {
        Counters {
            inner: Arc::new(Inner {
                increment: self.increment,
                prefix: self.prefix,
                apart: self.apart,
                clock: self.clock,
                newest: AtomicU64::new(0),
                hints: Hints::new(),
                known: Known::new(),
                counts: Counts::default(),
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
