//! A header's name instead of an extractor.

use axum::Router;
use tollgate::{RateLimitLayer, TokenBucket};

fn main() {
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key("x-api-key");
    let _: Router = Router::new().layer(layer);
}
