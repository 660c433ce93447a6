//! Budgets without requests: the state of a limit for anything that is not a request of a layer.

mod block;
mod future;
mod grant;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod limiter;

pub use self::{future::LimiterFuture, limiter::Limiter};
