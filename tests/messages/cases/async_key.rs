//! A key function that awaits.
//~ error[E0277]: `{async closure@cases/async_key.rs:
//~ the error points there; correct the argument of `.key(…)`
//~ an `async` closure returns no key: await in an outer layer

use axum::{Router, extract::Request};
use tollgate::{RateLimitLayer, TokenBucket, key::Key};

fn main() {
    let key = async |request: &Request| Key::from(request.uri().path());
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(key);
    let _: Router = Router::new().layer(layer);
}
