//! Two limits of one layer whose rules are of different types.
//~ error[E0277]: `tollgate::Limit<AnyRule>` is not a limit by a `tollgate::TokenBucket`, as the others of this layer are
//~ error[E0271]: type mismatch resolving `<Limit<AnyRule> as Limits<Request<String>>>::Rule == TokenBucket`
//~ error[E0271]: type mismatch resolving `<Limit<AnyRule> as Sealed>::AnyRule == TokenBucket`
//~ make each of them an `AnyRule`, by `AnyRule::from(rule)`

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
