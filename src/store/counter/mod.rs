//! Stores that can add to counters and return the totals.
//!
//! | file | |
//! |---|---|
//! | `increment` | the trait that the author of a store implements |
//! | `counters`, `builder` | the store, and its settings |
//! | `store` | its calls |
//! | `inner` | the parts that clones share |
//! | `decide` | adds, decides by the total, and takes back |
//! | `count_node` | the number of nodes that use a policy |
//! | `settle` | corrections and resets |
//! | `sync` | units of nodes that decide by themselves |
//! | `counter_set` | the counters of a key and their names |
//! | `slice_totals` | the totals of a key, and the decision that follows |
//! | `hints` | keys that are likely used up |
//! | `known_slicings` | the windows that a reset has to reach |
//! | `future` | calls that go on when they are dropped |
//! | `stats` | counters for reports |

mod builder;
mod count_node;
mod counter_set;
mod counters;
mod decide;
mod future;
mod hints;
mod increment;
mod inner;
mod known_slicings;
mod settle;
mod slice_totals;
mod stats;
mod store;
mod sync;

pub use self::{
    builder::CountersBuilder,
    counters::Counters,
    future::CountersFuture,
    increment::{Increment, Totals},
    stats::CounterStats,
};
