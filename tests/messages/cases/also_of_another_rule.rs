//! Two limits of one layer whose rules are of different types.
//~ error[E0308]: mismatched types
//~ expected `Limit<TokenBucket, _, _>`, found `Limit<AnyRule>`

mod parts;

use std::convert::Infallible;

use tollgate::{AnyRule, Limit, RateLimitLayer, TokenBucket};
use tower::ServiceBuilder;

fn main() {
    let parsed: AnyRule = "token-bucket 1000/1h".parse().unwrap();
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).also(Limit::new(parsed).named("hourly"));
    let service = parts::service::<String, Infallible>();
    parts::serve(ServiceBuilder::new().layer(layer).service(service));
}
