//! Limits from a file: its reading, its mistakes, its routes, and changes while requests go on.
#![cfg(all(feature = "axum", feature = "config", feature = "test-util"))]

#[path = "../common/mod.rs"]
mod common;

mod files;
mod reload;
mod routes;
mod wrong;
