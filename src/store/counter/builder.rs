//! The settings of a store.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use super::{
    CounterStore, Increment,
    decide::{CounterDriver, REFUSALS},
    slices::KnownSlicings,
    store::OperationCounts,
    sync::OpenDeltas,
};
use crate::{
    algorithm::Counted,
    store::engine::{RefusalCache, Unsettled},
    time::{Clock, MonotoneClock, SharedClock, SystemClock},
};

/// Builder of a [`CounterStore`], returned by [`CounterStore::builder_on`].
///
/// | setting | default |
/// |---|---|
/// | [`prefix`](Self::prefix) | `tollgate` |
/// | [`clocks_apart`](Self::clocks_apart) | 1 s |
/// | [`clock`](Self::clock) | the system's clock |
///
/// ```
/// use std::time::Duration;
/// use tollgate::{SlidingWindow, store::driver::{CounterStore, Increment}};
///
/// fn shop(cache: impl Increment) -> CounterStore<impl Increment, SlidingWindow> {
///     CounterStore::builder_on(cache)
///         .prefix("shop")
///         .clocks_apart(Duration::from_millis(50))
///         .build()
/// }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct CounterStoreBuilder<I, Rule> {
    increment: I,
    prefix: Box<str>,
    apart: Duration,
    clock: SharedClock,
    rule: PhantomData<fn() -> Rule>,
}

impl<I, Rule> CounterStoreBuilder<I, Rule> {
    /// Creates a builder with the defaults.
    pub fn new(increment: I) -> Self {
        Self {
            increment,
            prefix: "tollgate".into(),
            apart: Duration::from_secs(1),
            clock: Arc::new(SystemClock::default()),
            rule: PhantomData,
        }
    }

    /// Sets the prefix of all counters; `tollgate` by default.
    pub fn prefix(self, prefix: &str) -> Self {
        Self {
            prefix: prefix.into(),
            ..self
        }
    }

    /// Sets the greatest difference between the clocks of two hosts that share the counters; a
    /// second by default.
    ///
    /// Counters are kept longer by this time. This long before the end of a slice, calls under a
    /// sliding window read one more.
    pub fn clocks_apart(self, apart: Duration) -> Self {
        Self { apart, ..self }
    }

    /// Sets the clock, which determines the slice that a call counts in.
    ///
    /// If it steps back, the store's time stands still until it has caught up.
    pub fn clock(mut self, clock: impl Clock + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Builds the store.
    pub fn build(self) -> CounterStore<I, Rule>
    where
        I: Increment,
        Rule: Counted,
    {
        CounterStore {
            driver: Arc::new(CounterDriver {
                increment: self.increment,
                prefix: self.prefix,
                apart: self.apart,
                clock: MonotoneClock::new(self.clock),
                refusals: RefusalCache::new(REFUSALS),
                known: KnownSlicings::new(),
                counts: OperationCounts::default(),
                open_deltas: OpenDeltas::default(),
                unsettled: Unsettled::default(),
            }),
        }
    }
}

impl_clone!([I: Clone, Rule] CounterStoreBuilder<I, Rule>, {
    increment, prefix, apart, clock, rule
});

impl_debug!(CounterStoreBuilder<I, Rule>, |it| prefix = it.prefix, clocks_apart = it.apart);
