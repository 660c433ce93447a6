//! The settings of a store.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use super::{CasStore, CompareAndSwap, worker::SwapQueue};
use crate::{
    algorithm::{Algorithm, Codec},
    backoff::Backoff,
    time::{Clock, SharedClock, SystemClock},
};

/// Builder of a [`CasStore`], returned by [`CasStore::builder_on`].
///
/// | setting | default |
/// |---|---|
/// | [`prefix`](Self::prefix) | `tollgate` |
/// | [`attempts`](Self::attempts) | 32 |
/// | [`deadline`](Self::deadline) | 1 s |
/// | [`backoff`](Self::backoff) | 0 to 1 ms, doubling up to 64 ms |
/// | [`clock`](Self::clock) | the system's clock |
///
/// ```
/// use std::time::Duration;
/// use tollgate::{AnyRule, backoff::Backoff, store::driver::{CasStore, CompareAndSwap}};
///
/// /// For a server that answers within 20 ms.
/// fn shop(table: impl CompareAndSwap) -> CasStore<impl CompareAndSwap, AnyRule> {
///     CasStore::builder_on(table)
///         .prefix("shop")
///         .attempts(16)
///         .deadline(Duration::from_millis(200))
///         .backoff(Backoff::full(Duration::from_millis(4), Duration::from_millis(256)))
///         .build()
/// }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct CasStoreBuilder<C, Rule> {
    data: C,
    clock: SharedClock,
    prefix: String,
    settings: CasSettings,
    rule: PhantomData<fn() -> Rule>,
}

/// Settings of a store, without its prefix and clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct CasSettings {
    pub(super) attempts: u32,
    pub(super) deadline: Duration,
    pub(super) backoff: Option<Backoff>,
    pub(super) seed: Option<u64>,
    pub(super) combining: bool,
}

impl_clone!([C: Clone, Rule] CasStoreBuilder<C, Rule>, {
    data, clock, prefix, settings, rule
});

impl_debug!(CasStoreBuilder<C, Rule>, |it| prefix = it.prefix, settings = it.settings);

impl<C, Rule> CasStoreBuilder<C, Rule> {
    /// Creates a builder with the defaults.
    pub fn new(data: C) -> Self {
        Self {
            data,
            clock: Arc::new(SystemClock::default()),
            prefix: "tollgate".to_owned(),
            settings: CasSettings {
                attempts: 32,
                deadline: Duration::from_secs(1),
                backoff: Some(Backoff::full(
                    Duration::from_millis(1),
                    Duration::from_millis(64),
                )),
                seed: None,
                combining: true,
            },
            rule: PhantomData,
        }
    }

    /// Sets the prefix of all keys; `tollgate` by default.
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// Sets the number of races that a call may lose before it is given up as
    /// [contended](crate::store::StoreError::is_contended); 32 by default, and at least 1.
    /// [Deltas](crate::store::driver::Delta) of several keys are given up after 7 at most, because
    /// they wait for each other.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.settings.attempts = attempts.max(1);
        self
    }

    /// Sets the time within which a call is tried; a second by default, in steps of a millisecond.
    ///
    /// When it has passed, a call that keeps losing is given up as
    /// [contended](crate::store::StoreError::is_contended), and one that the store does not answer
    /// as [timed out](crate::store::StoreError::is_timeout). Where calls for one key keep coming,
    /// the last answer that a call waits for may take as long again; a bound for each call by
    /// itself is [`timeout`](crate::store::StoreExt::timeout).
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline;
        self
    }

    /// Sets the delays after lost races; `None` for no delay. By default they are drawn from 0 to 1
    /// ms, 2 ms, … up to 64 ms ([full jitter](Backoff::full)).
    ///
    /// A seed of the back-off makes the delays after all calls the same; [`seed`](Self::seed) is
    /// for tests.
    pub fn backoff(mut self, backoff: impl Into<Option<Backoff>>) -> Self {
        self.settings.backoff = backoff.into();
        self
    }

    /// Sets a seed for the delays, so that a test sees the same ones each time. Every process needs
    /// its own.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = Some(seed);
        self
    }

    /// Sets whether calls that wait for one key are combined into one swap; `true` by default.
    /// Without it all calls for one key race against each other, for measurements.
    pub fn combining(mut self, combining: bool) -> Self {
        self.settings.combining = combining;
        self
    }

    /// Sets the clock to decide by if the store [returns no time](super::Loaded::now);
    /// [`SystemClock`] by default.
    pub fn clock(mut self, clock: impl Clock + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Builds the store.
    pub fn build(self) -> CasStore<C, Rule>
    where
        C: CompareAndSwap,
        Rule: Algorithm<State: Codec>,
    {
        CasStore {
            prefix: self.prefix.into(),
            queue: Arc::new(SwapQueue::new(self.data, self.clock, self.settings)),
        }
    }
}
