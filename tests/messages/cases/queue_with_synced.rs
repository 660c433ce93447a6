//! A queue, whose units cannot be pushed to the store later.
//~ 3 x error[E0277]: units of the rule `tollgate::LeakyBucket` cannot be pushed to the store later
//~ for another rule leave `.synced(…)` out

mod parts;

use tollgate::{LeakyBucket, prelude::*, store::SyncConfig};

fn main() {
    let store = parts::Fallible.synced(SyncConfig::new()).fail_open();
    let _ = RateLimitLayer::new(LeakyBucket::per_second(10)).store(store);
}
