//! A token bucket, which no counter can run.
//~ error[E0277]: the rule `tollgate::TokenBucket` cannot be run by counters, which only add and tell the total
//~ counters run `FixedWindow`, `SlidingWindow`, and `CountedRule`

mod parts;

use tollgate::{TokenBucket, store::Counters};

fn main() {
    let _ = Counters::<_, TokenBucket>::new(parts::Cache);
}
