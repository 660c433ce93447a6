//! The store in memory: its decisions against a plain map, its size, its eviction, and threads that
//! meet on one key.
#![cfg(feature = "test-util")]

#[path = "../common/mod.rs"]
mod common;

mod bytes;
mod cap;
mod copies;
mod flood;
mod growth;
mod in_flight;
mod kinds;
mod marks;
mod oracle;
mod rules;
mod store;
mod stress;
mod table;
mod two_words;

// Counts by thread, so tests that run at the same time do not disturb each other.
#[global_allocator]
static ALLOCATOR: support::counting::Counting = support::counting::Counting;
