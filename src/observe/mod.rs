//! Observers: what a layer did, event by event, for counters, metrics and logs.
//!
//! [`RateLimitLayer::observe`](crate::RateLimitLayer::observe) takes any [`Observer`]:
//!
//! | observer | feature | effect | memory |
//! |---|---|---|---|
//! | [`EventCounters`] | | counts the events of a layer | 4 KiB |
//! | [`TopRefused`] | | finds the keys that are refused and nearly refused most | 200 bytes per key of the capacity |
//! | `Metrics` | `metrics` | reports events by policy through the facade `metrics`, as for Prometheus | the recorder's |
//! | `RefusalLog` | `tracing` | logs a sample of refusals | |
//!
//! Observers of your own can use [`TopKeys`], the most frequent keys of any events, and [`DistinctKeys`], the number of distinct keys. `Publish` (feature
//! `metrics`) reports what stores, wrappers and layers count anyway.

mod distinct_keys;
mod event;
mod event_counters;
mod event_counts;
mod key_index;
#[cfg(feature = "metrics")]
mod metrics;
mod observer;
#[cfg(feature = "metrics")]
mod publish;
#[cfg(feature = "tracing")]
mod refusal_log;
#[cfg(feature = "tracing")]
mod sampler;
mod space_saving;
mod stripe;
mod top_key;
mod top_keys;
mod top_refused;

#[cfg(feature = "tracing")]
#[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
pub use self::refusal_log::RefusalLog;
pub use self::{
    distinct_keys::DistinctKeys, event::Event, event_counters::EventCounters,
    event_counts::EventCounts, observer::Observer, top_key::TopKey, top_keys::TopKeys,
    top_refused::TopRefused,
};
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub use self::{metrics::Metrics, publish::Publish};
