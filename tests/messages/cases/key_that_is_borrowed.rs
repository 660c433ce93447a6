//! A key function that returns text of the request.
//~ error[E0277]: `{closure@cases/key_that_is_borrowed.rs:
//~ of borrowed text `Key::from(text)`

use axum::{Router, extract::Request};
use tollgate::{RateLimitLayer, TokenBucket};

fn main() {
    let key = |request: &Request| request.uri().path();
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(key);
    let _: Router = Router::new().layer(layer);
}
