//! Rate limits whose nodes push to each other through Kafka.
//!
//! ```text
//! node ──► deltas, by policy and key ──► aggregator ──► totals, compacted ──► all nodes
//! ```
//!
//! [`Kafka`] is a store for `.synced(…)`: a node produces what it admitted to a topic of deltas,
//! and decides on the totals that it reads from a second topic and on its own deltas that are not
//! in them yet. An [`Aggregator`] adds the deltas up by the rules themselves, and writes the state
//! of each key to the topic of totals. A total contains the offset of its last delta, and each
//! delta has a number, so redelivery and restarts count nothing twice.
//!
//! The totals are as old as the way through both topics: [`Kafka::staleness`]. So `(N − 1) · U` is
//! not a bound here. All nodes together exceed the limit by what they admit during that time.
//!
//! | file | contents |
//! |---|---|
//! | `node.rs` | the store of a node: read this first |
//! | `view.rs`, `own_changes.rs` | what a node has read, and what it has produced since |
//! | `aggregator.rs`, `partition.rs` | the sums, and those of one partition |
//! | `assignments.rs` | the partitions of an aggregator |
//! | `message.rs`, `total.rs` | what is in the topics |
//! | `reading.rs`, `settings.rs`, `error.rs` | the topics and their brokers |
//! | `counters.rs`, `publish.rs` | counters, and their metrics |
//! | `bin/` | a server, an aggregator, and a mock cluster to try both |
#![warn(missing_docs, missing_debug_implementations)]

mod aggregator;
mod assignments;
mod counters;
mod error;
mod message;
mod node;
mod own_changes;
mod partition;
mod publish;
mod reading;
mod settings;
mod total;
mod view;

pub use self::{
    aggregator::Aggregator, counters::AggregatorCounters, error::Error, node::Kafka,
    settings::Settings,
};
