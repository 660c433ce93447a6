//! A queue, which has no share for one node.
//~ error[E0277]: the rule `tollgate::LeakyBucket` cannot be divided among nodes
//~ return the rule of one node from `.rule(|rule| …)` instead of `.share(…)`

mod parts;

use tollgate::{LeakyBucket, prelude::*};

fn main() {
    let store = parts::Fallible.fall_back_to(Local::new()).share(1, 3);
    let _ = RateLimitLayer::new(LeakyBucket::per_second(10)).store(store);
}
