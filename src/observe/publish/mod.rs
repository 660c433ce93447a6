//! Counters of layers and stores, as metrics.

#[cfg(feature = "introspect")]
mod introspect;
mod layer;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod publish;
mod stores;
mod wrappers;

pub use self::publish::Publish;
