//! Stores that run a program beside their data.
//!
//! One program in Lua serves all rules: a driver, and a step for each algorithm. Two smaller programs decide the same for requests
//! about token buckets only, many or one. A fourth program makes settlements before it decides, a fifth one also grants units
//! ahead of their use, and a sixth one adds what nodes admitted by themselves. Each program reads the server's time and the states of its keys, decides, and writes the changed states with
//! an expiry. It answers with the states that it found, after settlements. This side makes the decisions anew from those, by the same
//! [`Algorithm`](crate::algorithm::Algorithm) that decides in memory, so every number is the same.
//!
//! | file | |
//! |---|---|
//! | `evaluate` | the trait that the author of a store implements |
//! | `script` | the store |
//! | `at` | decisions at a time that the caller gives, for tests |
//! | `program` | the programs, assembled from their files |
//! | `request` | the arguments of a program |
//! | `answer` | the answer of a program |
//! | `replay` | the decisions that follow from an answer |
//! | `settlement` | corrections of earlier charges |
//! | `sync` | what nodes admitted by themselves |
//! | `queue` | batches of calls and corrections |
//! | `key` | requests about a single key |
//! | `pack` | MessagePack |
//! | `stats` | counters |
//! | `lua/` | the driver and the programs for buckets; an algorithm has its `step.lua` and `settle.lua` in its own folder |

mod answer;
#[cfg(feature = "test-util")]
mod at;
mod count_node;
mod evaluate;
mod key;
mod pack;
mod program;
mod queue;
mod replay;
mod request;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod script;
mod settlement;
mod stats;
mod sync;

pub use self::{evaluate::Evaluate, program::Program, script::Script, stats::ScriptStats};
