//! A limit of several, where a layer is expected.
//~ error[E0277]: a `Limit` is not a layer
//~ begin with `RateLimitLayer::new(rule)`

use axum::Router;
use tollgate::{Limit, TokenBucket};

fn main() {
    let limit = Limit::new(TokenBucket::per_second(10)).named("api");
    let _: Router = Router::new().layer(limit);
}
