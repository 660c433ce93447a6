//! A key function that returns no key.
//~ error[E0277]: `{closure@cases/key_that_is_none.rs:
//~ returns a `Key`

use axum::{Router, extract::Request};
use tollgate::{RateLimitLayer, TokenBucket};

fn main() {
    let key = |request: &Request| request.headers().len();
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(key);
    let _: Router = Router::new().layer(layer);
}
