//! A pair of rules, which no script can run.

use tollgate::{TokenBucket, store::Redis};

fn main() {
    let _ = Redis::<(TokenBucket, TokenBucket)>::connect("redis://localhost");
}
