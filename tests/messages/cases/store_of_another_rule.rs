//! A store in memory of another rule than the layer's.

mod parts;

use std::convert::Infallible;

use tollgate::{AnyRule, RateLimitLayer, TokenBucket, store::Local};
use tower::ServiceBuilder;

fn main() {
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).store(Local::<AnyRule>::new());
    let service = parts::service::<String, Infallible>();
    parts::serve(ServiceBuilder::new().layer(layer).service(service));
}
