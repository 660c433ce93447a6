//! The parts that several stores are built from, each made once.
//!
//! | file | |
//! |---|---|
//! | `all_or_nothing` | the rule for several asks at once: all of them spend, or none |
//! | `held` | answers about calls in flight, whose callers may be gone |
//! | `queue` | calls that wait while a batch is in flight, and the turns of the workers that send batches |
//! | `refusals` | the cache of refusals, and when to forget what is known of a key |
//! | `steps` | operations of several calls, one after the other |
//! | `task` | tasks that outlive their callers, attempts that callers share, such as to connect, and concurrent operations |
//! | `unsettled` | the count of settlements that failed |

#[cfg_attr(
    not(feature = "tokio"),
    expect(dead_code, reason = "remote stores use the rest")
)]
mod all_or_nothing;
mod held;
#[cfg(feature = "tokio")]
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "only scripts bypass the queue")
)]
mod queue;
mod refusals;
mod steps;
#[cfg(feature = "tokio")]
mod task;
mod unsettled;

#[cfg(feature = "redis")]
pub(super) use self::queue::Bypass;
pub(crate) use self::steps::{Progress, Steps, StepsFuture, run};
#[cfg(any(feature = "redis", feature = "memcached"))]
pub(super) use self::task::SingleFlight;
#[cfg(feature = "tokio")]
pub(crate) use self::task::{runtime, runtime_gone};
#[cfg(feature = "tokio")]
pub(super) use self::{
    all_or_nothing::Answers,
    held::given_back,
    queue::{CombiningQueue, QueueTurn},
    task::{DetachOnDrop, concurrently, detach_on_drop, each_delta, spawn_detached},
};
pub(super) use self::{
    all_or_nothing::{CopiedStates, Entry, NoRoom, States, postponed},
    refusals::{Lookup, RefusalCache, RefusalEntry},
    unsettled::{SettlementGuard, Unsettled},
};
pub(crate) use self::{held::give_back, refusals::forget_changed};
