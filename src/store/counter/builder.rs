//! The settings of a store of counters.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use super::{
    Counters, Increment, hints::Hints, inner::Inner, known_slicings::KnownSlicings, stats::Counts,
    sync::OpenDeltas,
};
use crate::{
    algorithm::Counted,
    store::engine::{MonotoneClock, Unsettled},
    time::{Clock, SystemClock},
};

/// Builder of a [`Counters`] store, returned by [`Counters::builder_on`].
///
/// | setting | default |
/// |---|---|
/// | [`prefix`](Self::prefix) | `tollgate` |
/// | [`clocks_apart`](Self::clocks_apart) | 1 s |
/// | [`clock`](Self::clock) | the system's clock |
///
/// ```
/// use std::time::Duration;
/// use tollgate::{SlidingWindow, store::{Counters, Increment}};
///
/// fn shop(cache: impl Increment) -> Counters<impl Increment, SlidingWindow> {
///     Counters::builder_on(cache)
///         .prefix("shop")
///         .clocks_apart(Duration::from_millis(50))
///         .build()
/// }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct CountersBuilder<I, Rule, K = SystemClock> {
    increment: I,
    prefix: Box<str>,
    apart: Duration,
    clock: K,
    rule: PhantomData<fn() -> Rule>,
}

impl<I, Rule> CountersBuilder<I, Rule> {
    /// Creates a builder with the defaults.
    pub fn new(increment: I) -> Self {
        Self {
            increment,
            prefix: "tollgate".into(),
            apart: Duration::from_secs(1),
            clock: SystemClock::default(),
            rule: PhantomData,
        }
    }
}

impl<I, Rule, K> CountersBuilder<I, Rule, K> {
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
    pub fn clock<C: Clock>(self, clock: C) -> CountersBuilder<I, Rule, C> {
        CountersBuilder {
            increment: self.increment,
            prefix: self.prefix,
            apart: self.apart,
            clock,
            rule: PhantomData,
        }
    }

    /// Replaces the client that adds to counters.
    #[cfg(feature = "memcached")]
    pub(in crate::store) fn increment<J>(self, increment: J) -> CountersBuilder<J, Rule, K> {
        CountersBuilder {
            increment,
            prefix: self.prefix,
            apart: self.apart,
            clock: self.clock,
            rule: PhantomData,
        }
    }

    /// Builds the store.
    pub fn build(self) -> Counters<I, Rule, K>
    where
        I: Increment,
        Rule: Counted,
        K: Clock,
    {
        Counters {
            inner: Arc::new(Inner {
                increment: self.increment,
                prefix: self.prefix,
                apart: self.apart,
                clock: MonotoneClock::new(self.clock),
                hints: Hints::new(),
                known: KnownSlicings::new(),
                counts: Counts::default(),
                open_deltas: OpenDeltas::default(),
                unsettled: Unsettled::default(),
            }),
        }
    }
}

impl<I: Clone, Rule, K: Clone> Clone for CountersBuilder<I, Rule, K> {
    fn clone(&self) -> Self {
        Self {
            increment: self.increment.clone(),
            prefix: self.prefix.clone(),
            apart: self.apart,
            clock: self.clock.clone(),
            rule: PhantomData,
        }
    }
}

impl<I, Rule, K> fmt::Debug for CountersBuilder<I, Rule, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountersBuilder")
            .field("prefix", &self.prefix)
            .field("clocks_apart", &self.apart)
            .finish_non_exhaustive()
    }
}
