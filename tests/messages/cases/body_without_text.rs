//! A response body that no problem document can become.

mod parts;

use std::convert::Infallible;

use tollgate::{RateLimitLayer, TokenBucket};
use tower::ServiceBuilder;

#[derive(Default)]
struct Pixels;

fn main() {
    let layer = RateLimitLayer::new(TokenBucket::per_second(10));
    let service = parts::service::<Pixels, Infallible>();
    parts::serve(ServiceBuilder::new().layer(layer).service(service));
}
