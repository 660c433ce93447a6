//! A header's name instead of an extractor.
//~ error[E0277]: `&str` does not derive a key from `axum::http::Request<Body>`
//~ a key extractor is one of `tollgate::key`

use axum::Router;
use tollgate::{RateLimitLayer, TokenBucket};

fn main() {
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key("x-api-key");
    let _: Router = Router::new().layer(layer);
}
