//! A store that can fail, without a word on what happens then.
//~ error[E0277]: expected a store that cannot fail, found one that fails with `StoreError`
//~ error[E0599]: the method `service` exists for struct `ServiceBuilder<
//~ `.fail_open()` admits requests

mod parts;

use std::convert::Infallible;

use tollgate::{RateLimitLayer, TokenBucket};
use tower::ServiceBuilder;

fn main() {
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).store(parts::Fallible);
    let service = parts::service::<String, Infallible>();
    let _ = ServiceBuilder::new().layer(layer).service(service);
}
