//! Any rule on a store of counters behind a layer, instead of a `CountedRule`.

mod parts;

use std::convert::Infallible;

use tollgate::{AnyRule, RateLimitLayer, prelude::*, store::Counters};
use tower::ServiceBuilder;

fn layer(rule: AnyRule) {
    let store = Counters::new(parts::Cache).fail_open();
    let layer = RateLimitLayer::new(rule).store(store);
    let service = parts::service::<String, Infallible>();
    parts::serve(ServiceBuilder::new().layer(layer).service(service));
}

fn main() {
    let _ = layer;
}
