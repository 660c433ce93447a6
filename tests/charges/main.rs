//! Charges that are corrected after their requests were admitted: by the handler, by the response,
//! by the end of the body.
#![cfg(all(feature = "memcached", feature = "redis", feature = "test-util"))]

#[path = "../common/mod.rs"]
mod common;

mod balance;
mod bodies;
mod connections;
mod handles;
mod late;
mod logins;
mod missing_responses;
mod refunds;
mod settlements;
mod stores;

use std::num::NonZeroU64;

use tollgate::{Cost, TokenBucket};

use crate::common::rules;

/// The units that a client has for the length of a test.
const UNITS: u64 = 10_000;

/// So many units at once, and no more for as long as a test runs.
fn at_once(burst: u64) -> TokenBucket {
    // A bucket may take 24 years to fill.
    let period = if burst > 8_000 { "10m" } else { "1d" };
    format!("token-bucket 1/{period} burst={burst}")
        .parse()
        .unwrap()
}

fn cost(units: u64) -> Cost {
    NonZeroU64::new(units).map(Cost::from).unwrap()
}
