//! A response body that no problem document can become.
//~ error[E0277]: `Http` cannot answer `http::Request<String>` with `Response<Pixels>` or the error `Infallible`
//~ `Http::empty()` and `Grpc` need `B: Default`

mod parts;

use std::convert::Infallible;

use tollgate::{RateLimitLayer, TokenBucket};
use tower::ServiceBuilder;

#[derive(Default)]
struct Pixels;

fn main() {
    let layer = RateLimitLayer::new(TokenBucket::per_second(10));
    let service = parts::service::<Pixels, Infallible>();
    parts::serve(ServiceBuilder::new().layer(layer).service(service));
}
