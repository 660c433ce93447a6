//! Dry runs: limits that decide and count, without effect on requests.
//!
//! A dry run is asked separately from the live limits. In one question, all or nothing would couple
//! them: a refusal by the dry run would leave the live limits uncharged, and a refusal by a live
//! limit would leave the dry run uncharged, so that its counts would depend on the other rule. So
//! the store decides each dry run by itself, at the same time as the others, and both rules see the
//! same requests, as in `replay --compare`. What the store cannot decide is undecided, under every
//! policy, and compared with nothing.
//!
//! The request waits for the answer. A task that nobody awaits would need a runtime and a bound on
//! how many there may be, would lose the order of a client's requests, and could not compare the
//! two decisions of a request. The price is one more question to the store, and the latency of the
//! slower answer.

mod counters;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod dry_run;
mod enforcement;
mod report;

// Public because bounds of the layer name it, but without a public path.
pub(crate) use self::enforcement::Enforcement;
pub use self::{dry_run::DryRun, enforcement::Enforced, report::DryRunReport};
