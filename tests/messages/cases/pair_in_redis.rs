//! A pair of rules, which no script can run.
//~ error[E0277]: the rule `(tollgate::TokenBucket, tollgate::TokenBucket)` cannot be run by a script
//~ take an `AnyRule` of both

use tollgate::{TokenBucket, store::Redis};

fn main() {
    let _ = Redis::<(TokenBucket, TokenBucket)>::connect("redis://localhost");
}
