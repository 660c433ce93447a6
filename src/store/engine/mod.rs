//! The parts that several stores are built from, each made once.
//!
//! | file | |
//! |---|---|
//! | `all_or_nothing` | the rule for several asks at once: all of them spend, or none |
//! | `concurrently` | operations that are in flight at the same time |
//! | `each_delta` | the answer to several deltas, each of which has a result |
//! | `queue` | calls that wait while a batch is in flight, and the turns of those who send batches |
//! | `single_flight` | one attempt at a time to make what all calls share, such as a connection |
//! | `monotone` | a clock that never falls |
//! | `steps` | operations of several calls, one after the other |
//! | `stats` | counters, and the public struct that shows them |
//! | `task` | work that goes on if its caller is dropped |
//! | `unsettled` | the count of settlements that failed |

#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "remote stores use the rest")
)]
mod all_or_nothing;
#[cfg(feature = "tokio")]
mod concurrently;
#[cfg(feature = "tokio")]
mod each_delta;
mod monotone;
#[cfg(feature = "tokio")]
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "only scripts bypass the queue")
)]
mod queue;
#[cfg(any(feature = "redis", feature = "memcached"))]
mod single_flight;
mod stats;
mod steps;
#[cfg(feature = "tokio")]
mod task;
mod unsettled;

#[cfg(feature = "redis")]
pub(super) use self::queue::Bypass;
#[cfg(any(feature = "redis", feature = "memcached"))]
pub(super) use self::single_flight::SingleFlight;
#[cfg(feature = "tokio")]
pub(crate) use self::stats::stats;
#[cfg(feature = "tokio")]
pub(super) use self::{
    all_or_nothing::Answers,
    concurrently::concurrently,
    each_delta::each_delta,
    queue::{CombiningQueue, Turn},
    task::{runtime, runtime_gone, spawn_detached},
};
pub(super) use self::{
    all_or_nothing::{Entry, States},
    monotone::MonotoneClock,
    unsettled::{SettlementGuard, Unsettled},
};
pub(crate) use self::{
    stats::Counter,
    steps::{Progress, Steps, StepsFuture, run},
};
