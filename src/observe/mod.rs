//! Observers, which receive the events of a layer for counters, metrics and logs.
//!
//! [`RateLimitLayer::observe`](crate::RateLimitLayer::observe) takes any [`Observer`]:
//!
//! | observer | feature | effect | memory |
//! |---|---|---|---|
//! | [`EventCounters`] | | counts the events of a layer | 4 KiB |
//! | [`TopRefused`] | | finds the keys that are refused and nearly refused most | 200 bytes per key of the capacity |
//! | `Metrics` | `metrics` | reports events by policy through the facade `metrics`, for example to Prometheus | the recorder's |
//! | `RefusalLog` | `tracing` | logs a sample of refusals | |
//!
//! Observers of your own can use [`TopKeys`], the most frequent keys of any events, and
//! [`DistinctKeys`], the number of distinct keys. `Publish` (feature `metrics`) reports the
//! counters of stores, wrappers and layers.

mod counters;
mod distinct_keys;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod refusal_log;
mod top_keys;

#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub use self::metrics::{Metrics, Publish};
#[cfg(feature = "tracing")]
#[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
pub use self::refusal_log::RefusalLog;
pub use self::{
    counters::{EventCounters, EventCounts},
    distinct_keys::DistinctKeys,
    top_keys::{TopKey, TopKeys, TopRefused},
};

use std::{sync::Arc, time::Duration};

use crate::{
    decision::Decision,
    key::{Key, MissingKey},
    policy::Policy,
};

/// Receives the events of a layer, with one method per event.
///
/// Pass an observer to [`RateLimitLayer::observe`](crate::RateLimitLayer::observe). The methods run
/// within the request, so they must be fast and must not block. By default they do nothing. A layer
/// with several limits reports each limit separately. A pair of observers calls both, and `()` does
/// nothing.
///
/// | event of a limit | when |
/// |---|---|
/// | [`admitted`](Self::admitted) | all limits of the layer admitted the request, and this one charged it |
/// | [`delayed`](Self::delayed) | as above, and this limit delays it |
/// | [`refused`](Self::refused) | this limit refused the request. Limits that would have admitted it have no event: they spent nothing |
/// | [`undecided`](Self::undecided) | the store could not decide; [`is_admitted`](crate::Decision::is_admitted) is `true` if the request proceeds |
/// | [`exempt`](Self::exempt) | the key extractors of all limits of the layer exempted the request |
/// | [`missing_key`](Self::missing_key) | the request has no key |
/// | [`settled`](Self::settled) | a charge was corrected to its actual cost, or made [after the response](crate::Limit::charge_after) |
/// | [`dry_run`](Self::dry_run) | a limit on a dry run decided, without effect |
/// | [`held`](Self::held), [`released`](Self::released) | a call took units of a limit of calls in flight; it gave them back |
/// | [`outlasted`](Self::outlasted) | a call goes on after the maximal hold of its units |
/// | [`gone`](Self::gone) | no limit of a file has this policy any more |
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
/// use tollgate::{RateLimitLayer, TokenBucket, observe::{Event, Observer}};
///
/// #[derive(Default)]
/// struct Refusals(AtomicU64);
///
/// impl Observer for Refusals {
///     fn refused(&self, _: &Event<'_>) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// let refusals = Arc::new(Refusals::default());
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).observe(Arc::clone(&refusals));
/// # let _ = layer;
/// ```
#[doc(alias = "metrics")]
#[expect(unused_variables, reason = "their names are documentation")]
pub trait Observer {
    /// Called when a limit has admitted a request that proceeds at once.
    #[inline]
    fn admitted(&self, event: &Event<'_>) {}

    /// Called when a limit has admitted a request that proceeds after `wait`.
    #[inline]
    fn delayed(&self, event: &Event<'_>, wait: Duration) {}

    /// Called when a limit has refused a request.
    #[inline]
    fn refused(&self, event: &Event<'_>) {}

    /// Called when the store could not decide about a request.
    #[inline]
    fn undecided(&self, event: &Event<'_>) {}

    /// Called when a request is exempt from all limits of the layer.
    #[inline]
    fn exempt(&self) {}

    /// Called when a request is refused because it has no key.
    #[inline]
    fn missing_key(&self, missing: &MissingKey) {}

    /// Called when a charge of `charged` units is corrected to `actual` units. A charge that is
    /// made [after the response](crate::Limit::charge_after) is reported as a correction from 0
    /// units.
    ///
    /// The event is reported when the layer settles. If the store then fails to apply the
    /// settlement, it [counts](crate::store::Backend::unsettled) the failure.
    #[inline]
    fn settled(&self, policy: &Policy, key: &Key, charged: u64, actual: u64) {}

    /// Called when a limit on a dry run has decided about a request, without effect on it.
    ///
    /// The decision is the one that the limit would have made if it were enforced: its
    /// [verdict](crate::Decision::verdict) may be a refusal.
    #[inline]
    fn dry_run(&self, event: &Event<'_>) {}

    /// A call holds units of a limit of [calls in flight](crate::InFlight), also on a dry run.
    #[inline]
    fn held(&self, policy: &Policy, key: &Key, units: u64) {}

    /// A call goes on after the [maximal hold](crate::InFlight::max_hold) of units that it
    /// [held](Self::held), which are given back at this instant: once for each of them. The end of
    /// the call reports nothing more of that.
    ///
    /// Reported by a task, so only for calls that begin in a runtime of tokio with timers.
    #[inline]
    fn outlasted(&self, policy: &Policy, key: &Key, units: u64) {}

    /// A call gives back the units that it [held](Self::held): once for each of them.
    #[inline]
    fn released(&self, policy: &Policy, key: &Key, units: u64) {}

    /// Called when a file of limits was replaced by one without this policy, and all requests that
    /// the old one admitted have ended: the layer reports nothing more of it, unless a later file
    /// has it again.
    #[inline]
    fn gone(&self, policy: &Policy) {}
}

/// Does nothing.
impl Observer for () {}

/// Forwards the events to another observer.
macro_rules! forward {
    ($self:ident, $($observer:expr),+) => {
        #[inline]
        fn admitted(&$self, event: &Event<'_>) {
            $($observer.admitted(event);)+
        }

        #[inline]
        fn delayed(&$self, event: &Event<'_>, wait: Duration) {
            $($observer.delayed(event, wait);)+
        }

        #[inline]
        fn refused(&$self, event: &Event<'_>) {
            $($observer.refused(event);)+
        }

        #[inline]
        fn undecided(&$self, event: &Event<'_>) {
            $($observer.undecided(event);)+
        }

        #[inline]
        fn exempt(&$self) {
            $($observer.exempt();)+
        }

        #[inline]
        fn missing_key(&$self, missing: &MissingKey) {
            $($observer.missing_key(missing);)+
        }

        #[inline]
        fn settled(&$self, policy: &Policy, key: &Key, charged: u64, actual: u64) {
            $($observer.settled(policy, key, charged, actual);)+
        }

        #[inline]
        fn dry_run(&$self, event: &Event<'_>) {
            $($observer.dry_run(event);)+
        }

        #[inline]
        fn held(&$self, policy: &Policy, key: &Key, units: u64) {
            $($observer.held(policy, key, units);)+
        }

        #[inline]
        fn outlasted(&$self, policy: &Policy, key: &Key, units: u64) {
            $($observer.outlasted(policy, key, units);)+
        }

        #[inline]
        fn released(&$self, policy: &Policy, key: &Key, units: u64) {
            $($observer.released(policy, key, units);)+
        }

        #[inline]
        fn gone(&$self, policy: &Policy) {
            $($observer.gone(policy);)+
        }
    };
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    forward!(self, (**self));
}

/// Calls both observers, in this order.
impl<A: Observer, B: Observer> Observer for (A, B) {
    forward!(self, self.0, self.1);
}

/// The decision of one limit about a request, with the limit's policy and key.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::observe::{Event, Observer};
///
/// /// Counts the refusals of one policy.
/// #[derive(Default)]
/// struct RefusedUploads(AtomicU64);
///
/// impl Observer for RefusedUploads {
///     fn refused(&self, event: &Event<'_>) {
///         if event.policy().name() == "uploads" {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    policy: &'a Policy,
    key: &'a Key,
    decision: &'a Decision,
}

impl<'a> Event<'a> {
    /// Creates the event of a decision about a key, for tests of observers.
    #[inline]
    pub const fn new(policy: &'a Policy, key: &'a Key, decision: &'a Decision) -> Self {
        Self {
            policy,
            key,
            decision,
        }
    }

    /// Returns the policy of the limit.
    #[inline]
    pub const fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// Returns the key that the limit counts by.
    #[inline]
    pub const fn key(&self) -> &'a Key {
        self.key
    }

    /// Returns the decision.
    #[inline]
    pub const fn decision(&self) -> &'a Decision {
        self.decision
    }
}
