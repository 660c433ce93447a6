//! Redis, Redis Cluster and Valkey: one limit for many instances.
//!
//! | file | contents |
//! |---|---|
//! | `store` | `Redis`, its constructors, and its behaviour under faults |
//! | `builder`, `url`, `tls` | the settings of a connection |
//! | `connection`, `evaluate` | `RedisConnection`, which runs the scripts |
//! | `transport` | the kinds of connections that a command can be sent over |
//! | `shared_connection`, `query` | one connection to a server, shared by all calls |
//! | `server`, `sentinel` | connecting to a server, or to the master that sentinels report |
//! | `cluster`, `slot_map`, `topology`, `hash_slot` | routing in a cluster |
//! | `handshake` | checks of a new connection |
//! | `detach_on_drop`, `next_ready` | futures that outlive their call, and the first of several |
//! | `error` | errors of the client as errors of the store |

mod builder;
mod cluster;
mod connection;
mod detach_on_drop;
mod error;
mod evaluate;
mod handshake;
mod hash_slot;
mod next_ready;
mod query;
mod sentinel;
mod server;
mod shared_connection;
mod slot_map;
mod store;
#[cfg(feature = "redis-tls")]
mod tls;
mod topology;
mod transport;
mod url;

pub use self::{builder::RedisBuilder, connection::RedisConnection, store::Redis};
