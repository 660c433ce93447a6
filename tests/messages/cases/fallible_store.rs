//! A store that can fail, without a word on what happens then.

mod parts;

use std::convert::Infallible;

use tollgate::{RateLimitLayer, TokenBucket};
use tower::ServiceBuilder;

fn main() {
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).store(parts::Fallible);
    let service = parts::service::<String, Infallible>();
    let _ = ServiceBuilder::new().layer(layer).service(service);
}
