//! A queue, whose units cannot be granted ahead.

mod parts;

use tollgate::{LeakyBucket, prelude::*, store::LeaseConfig};

fn main() {
    let store = parts::Fallible.leased(LeaseConfig::new()).fail_open();
    let _ = RateLimitLayer::new(LeakyBucket::per_second(10)).store(store);
}
