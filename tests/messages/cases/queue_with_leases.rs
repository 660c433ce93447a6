//! A queue, whose units cannot be granted ahead.
//~ 2 x error[E0277]: units of the rule `tollgate::LeakyBucket` cannot be leased
//~ for another rule leave `.leased(…)` out

mod parts;

use tollgate::{LeakyBucket, prelude::*, store::LeaseConfig};

fn main() {
    let store = parts::Fallible.leased(LeaseConfig::new()).fail_open();
    let _ = RateLimitLayer::new(LeakyBucket::per_second(10)).store(store);
}
