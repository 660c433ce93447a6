//! Counters of layers and stores, as metrics.

#[cfg(all(feature = "http-body", feature = "tokio"))]
mod drained;
#[cfg(feature = "introspect")]
mod introspect;
mod layer;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod publish;
mod stores;
mod wrappers;

pub use self::publish::Publish;
