//! Introspection of bearer tokens: the cache against a model, the endpoint against a real HTTP server that fails in many ways.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]
#![cfg(all(feature = "introspect", feature = "test-util"))]

mod answers;
mod bounds;
mod end_to_end;
mod endpoint;
mod flights;
mod model;
mod secrets;
mod server;
mod subject;

#[global_allocator]
static COUNTING: support::counting::Counting = support::counting::Counting;
