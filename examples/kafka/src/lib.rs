//! Rate limits whose nodes tell each other through Kafka.
//!
//! ```text
//! node ──► deltas, by policy and key ──► aggregator ──► totals, compacted ──► all nodes
//! ```
//!
//! [`Kafka`] is a store for `.synced(…)`: a node produces what it admitted to a topic of deltas, and decides on the totals that it reads from a second topic and
//! on its own deltas that are not in them yet. An [`Aggregator`] adds the deltas up by the rules themselves, and writes the state of each key to the topic of totals.
//! Each delta has a number, so redelivery and restarts count nothing twice.
//!
//! The totals are as old as the way through both topics: [`Kafka::staleness`]. So `(N − 1) · U` is not a bound here. All nodes together exceed the limit by what they
//! admit during that time.

mod aggregator;
mod message;
mod node;
mod settings;

pub use self::{
    aggregator::Aggregator,
    node::{Kafka, Totals},
    settings::Settings,
};
