//! Decides locally while a remote store fails.

mod builder;
mod done;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod fallback;
mod future;
mod scalable;
mod stores;

pub use self::{
    builder::FallbackBuilder, done::FallbackDone, fallback::Fallback, future::FallbackFuture,
    scalable::Scalable,
};
