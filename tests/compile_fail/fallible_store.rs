//! A store that can fail, without a word on what happens then.

#[path = "../compile_fail_parts/mod.rs"]
mod parts;

use tollgate::{RateLimitLayer, TokenBucket};
use tower::ServiceBuilder;

fn main() {
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).store(parts::Fallible);
    let _ = ServiceBuilder::new().layer(layer).service(parts::hello());
}
