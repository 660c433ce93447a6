//! A token bucket, which no counter can run.

mod parts;

use tollgate::{TokenBucket, store::Counters};

fn main() {
    let _ = Counters::<_, TokenBucket>::new(parts::Cache);
}
