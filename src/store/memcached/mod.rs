//! Stores in memcached.
//!
//! | file | contents |
//! |---|---|
//! | `store` | `Memcached`, `MemcachedCounters`, and their behaviour under faults |
//! | `builder`, `counters_builder` | the settings of the two stores |
//! | `connection`, `connection_builder`, `url` | `MemcachedConnection` and its settings |
//! | `compare_and_swap`, `increment` | the operations of the two stores |
//! | `pool`, `server` | several connections to one server |
//! | `handshake` | checks of a new connection |
//! | `pipeline`, `driver` | one connection, shared by all calls |
//! | `command`, `response`, `wire_key`, `expiry` | the protocol |
//! | `error` | unexpected responses as errors |

mod builder;
mod command;
mod compare_and_swap;
mod connection;
mod connection_builder;
mod counters_builder;
mod driver;
mod error;
mod expiry;
mod handshake;
mod increment;
mod pipeline;
mod pool;
mod response;
mod server;
mod store;
mod url;
mod wire_key;

pub use self::{
    builder::MemcachedBuilder,
    compare_and_swap::CasUnique,
    connection::MemcachedConnection,
    connection_builder::MemcachedConnectionBuilder,
    counters_builder::MemcachedCountersBuilder,
    store::{Memcached, MemcachedCounters},
};
