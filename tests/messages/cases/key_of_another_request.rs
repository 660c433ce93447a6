//! A key function for another request type than the service's.
//~ error[E0631]: type mismatch in closure arguments
//~ expected closure signature `for<'a> fn(&'a http::Request<Body>)

use axum::Router;
use http::Request;
use tollgate::{RateLimitLayer, TokenBucket, key::Key};

fn main() {
    let key = |request: &Request<String>| Key::from(request.body().as_str());
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(key);
    let _: Router = Router::new().layer(layer);
}
