//! A store that can fail, without a word on what happens then, where most layers are added.
//~ 2 x error[E0277]: expected a store that cannot fail, found one that fails with `StoreError`
//~ `.fail_open()` admits requests

mod parts;

use axum::Router;
use tollgate::{RateLimitLayer, TokenBucket};

fn main() {
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).store(parts::Fallible);
    let _: Router = Router::new().layer(layer);
}
