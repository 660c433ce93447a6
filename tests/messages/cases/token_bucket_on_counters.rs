//! A token bucket, which no counter can run.
//~ error[E0277]: the rule `tollgate::TokenBucket` cannot be run by counters, which only add and return the total
//~ counters run `FixedWindow`, `SlidingWindow`, and an `AnyRule` that is one of them

mod parts;

use tollgate::{TokenBucket, store::driver::CounterStore};

fn main() {
    let _ = CounterStore::<_, TokenBucket>::new(parts::Cache);
}
