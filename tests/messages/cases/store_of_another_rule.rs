//! A store in memory of another rule than the layer's.
//~ 2 x error[E0277]: the store `Local<AnyRule>` cannot run the rule `tollgate::TokenBucket`
//~ a layer's rule and its store must name the same rule type

mod parts;

use std::convert::Infallible;

use tollgate::{AnyRule, RateLimitLayer, TokenBucket, store::Local};
use tower::ServiceBuilder;

fn main() {
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).store(Local::<AnyRule>::new());
    let service = parts::service::<String, Infallible>();
    parts::serve(ServiceBuilder::new().layer(layer).service(service));
}
