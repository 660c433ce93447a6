//! Counters, which only add, cannot keep blocks.
//~ 3 x error[E0277]: the rule `Blockable<tollgate::FixedWindow>` cannot be run by counters, which only add and return the total
//~ so they keep no blocks of keys

mod parts;

use std::convert::Infallible;

use tollgate::{FixedWindow, prelude::*, store::driver::CounterStore};
use tower::ServiceBuilder;

fn main() {
    let store = CounterStore::new(parts::Cache).with_blocks().fail_open();
    let layer = RateLimitLayer::new(FixedWindow::per_minute(10)).store(store);
    let service = parts::service::<String, Infallible>();
    parts::serve(ServiceBuilder::new().layer(layer).service(service));
}
