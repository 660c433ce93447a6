//! A second layer, where a limit is expected.
//~ error[E0308]: mismatched types
//~ expected `Limit<TokenBucket, _, _>`, found `RateLimitLayer<

use tollgate::{RateLimitLayer, TokenBucket};

fn main() {
    let second = RateLimitLayer::new(TokenBucket::per_hour(100)).named("hourly");
    let _ = RateLimitLayer::new(TokenBucket::per_second(10)).also(second);
}
