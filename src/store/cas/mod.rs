//! Stores that compare and swap: they replace a value if nobody has written it since.
//!
//! | file | |
//! |---|---|
//! | `swap` | the trait that the author of a store implements |
//! | `store`, `builder` | the store, and its settings |
//! | `several` | calls about several keys |
//! | `queue` | jobs that wait for their key |
//! | `work` | a job: work on one key, and its caller |
//! | `worker` | loads, decides and swaps, and repeats it after a lost race |
//! | `draft` | the states under a key while a batch of work is done on them |
//! | `frame` | the bytes of a value: a state of each kind of rule |
//! | `cached` | the value that the last load or swap left under a key |
//! | `count_node` | the number of nodes that use a policy |
//! | `stats` | counters |

mod builder;
mod cached;
mod count_node;
mod draft;
mod frame;
mod marks;
mod queue;
mod several;
mod stats;
mod store;
mod swap;
mod sync;
mod work;
mod worker;

pub use self::{
    builder::OptimisticBuilder,
    stats::CasStats,
    store::Optimistic,
    swap::{CompareAndSwap, Loaded, Swap, Swapped},
};
