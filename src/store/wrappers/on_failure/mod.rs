//! Answers the calls that fail: `fail_open` and `fail_closed`.

mod counters;
mod failure_mode;
mod future;
#[cfg(feature = "tracing")]
mod log;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod on_failure;

pub use self::{failure_mode::FailureMode, future::OnFailureFuture, on_failure::OnFailure};
