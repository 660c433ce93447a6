//! A key function whose argument has no type.
//~ error: implementation of `FnOnce` is not general enough
//~ error: implementation of `Fn` is not general enough
//~ closure with signature `fn(&'2 axum::http::Request<Body>) -> tollgate::key::Key`

use axum::Router;
use tollgate::{RateLimitLayer, TokenBucket, key::Key};

fn main() {
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(|_| Key::from(7));
    let _: Router = Router::new().layer(layer);
}
