//! A layer of tower-http below the limit, whose responses have bodies of their own.
//~ error[E0277]: `Http` cannot answer `axum::http::Request<Body>` with `Response<tower_http::trace::ResponseBody<Body,
//~ turn it back just below the limit: `.layer(tower_http::map_response_body::MapResponseBodyLayer::new(Body::new))`

use axum::Router;
use tollgate::{RateLimitLayer, TokenBucket};
use tower::ServiceBuilder;
use tower_http::trace::TraceLayer;

fn main() {
    let limit = RateLimitLayer::new(TokenBucket::per_second(10));
    let stack = ServiceBuilder::new().layer(limit).layer(TraceLayer::new_for_http());
    let _: Router = Router::new().layer(stack);
}
