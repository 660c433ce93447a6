//! The name of a shape of headers where an answer is expected.
//~ error[E0277]: `Headers` cannot answer `axum::http::Request<Body>` with `Response<Body>` or the error `Infallible`
//~ `Http` (the default) needs

use axum::Router;
use tollgate::{RateLimitLayer, TokenBucket, respond::Headers};

fn main() {
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).respond(Headers::Legacy);
    let _: Router = Router::new().layer(layer);
}
