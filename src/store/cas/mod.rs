//! Stores that can do nothing but replace a value if nobody has written it since.
//!
//! | file | |
//! |---|---|
//! | `swap` | what a store's author writes |
//! | `store`, `builder` | the store that is made of it |
//! | `queue` | calls that wait for their turn, by key |
//! | `worker` | load, decide, swap; and once more after a lost race |
//! | `work` | what is done about a key |
//! | `draft` | what that makes of its states |
//! | `frame` | the value: a state of each kind of rule |
//! | `known` | what is known of a key |
//! | `several` | several keys in one call |

mod builder;
mod cached;
mod draft;
mod frame;
mod queue;
mod several;
mod stats;
mod store;
mod swap;
mod work;
mod worker;

pub use self::{
    builder::OptimisticBuilder,
    stats::CasStats,
    store::Optimistic,
    swap::{CompareAndSwap, Loaded, Swap, Swapped},
};
