//! A store inside of blocks whose rule type is written, and is not blockable.
//~ 2 x error[E0277]: the store `Local<tollgate::TokenBucket>` cannot run the rule `Blockable<tollgate::TokenBucket>`
//~ inside of `.with_blocks()` a store runs `Blockable<Rule>`: leave out the rule type of the store (`Local::new().with_blocks()`), or write `Local::<Blockable<Rule>>::new()`

mod parts;

use std::convert::Infallible;

use tollgate::{
    RateLimitLayer, TokenBucket,
    store::{Local, StoreExt},
};
use tower::ServiceBuilder;

fn main() {
    let store = Local::<TokenBucket>::new().with_blocks();
    let layer = RateLimitLayer::new(TokenBucket::per_minute(10)).store(store);
    let service = parts::service::<String, Infallible>();
    parts::serve(ServiceBuilder::new().layer(layer).service(service));
}
