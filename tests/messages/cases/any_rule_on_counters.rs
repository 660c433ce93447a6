//! Any rule on a store of counters behind a layer, instead of a `CountedRule`.
//~ 3 x error[E0277]: the rule `AnyRule` cannot be run by counters, which only add and return the total
//~ `CountedRule::try_from(rule)`

mod parts;

use std::convert::Infallible;

use tollgate::{AnyRule, RateLimitLayer, prelude::*, store::driver::CounterStore};
use tower::ServiceBuilder;

fn layer(rule: AnyRule) {
    let store = CounterStore::new(parts::Cache).fail_open();
    let layer = RateLimitLayer::new(rule).store(store);
    let service = parts::service::<String, Infallible>();
    parts::serve(ServiceBuilder::new().layer(layer).service(service));
}

fn main() {
    let _ = layer;
}
