//! A second layer, where a limit is expected.
//~ error[E0277]: `RateLimitLayer<
//~ `.also(…)` takes a `Limit`, made by `Limit::new(rule)`, and no second layer

use tollgate::{RateLimitLayer, TokenBucket};

fn main() {
    let second = RateLimitLayer::new(TokenBucket::per_hour(100)).named("hourly");
    let _ = RateLimitLayer::new(TokenBucket::per_second(10)).also(second);
}
