//! A list of limits whose rules are of different types.
//~ error[E0308]: mismatched types
//~ expected `Limit<TokenBucket, BoxBy<..., ...>, ...>`, found `Limit<AnyRule, BoxBy<..., ...>, ...>`

use axum::extract::Request;
use tollgate::{AnyRule, BoxLimit, Limit, RateLimitLayer, TokenBucket};

fn main() {
    let parsed: AnyRule = "token-bucket 1000/1h".parse().unwrap();
    let second: BoxLimit<Request, TokenBucket> = Limit::new(TokenBucket::per_second(10)).boxed();
    let hourly: BoxLimit<Request, AnyRule> = Limit::new(parsed).named("hourly").boxed();
    let _ = RateLimitLayer::list(vec![second, hourly]);
}
