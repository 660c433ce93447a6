//! A rule, a cost and a condition that await.
//~ 3 x error[E0271]: expected `{async closure@
//~ to return `Option<TokenBucket>`, but it returns `{async closure body@
//~ to return `Cost`, but it returns `{async closure body@
//~ to return `bool`, but it returns `{async closure body@

use axum::{Router, extract::Request, response::Response};
use tollgate::{Cost, RateLimitLayer, TokenBucket};

const RULE: TokenBucket = TokenBucket::per_second(10);

fn main() {
    let layer = RateLimitLayer::new(RULE).rule(async |_: &Request| Some(RULE));
    let _: Router = Router::new().layer(layer);
    let layer = RateLimitLayer::new(RULE).cost(async |_: &Request| Cost::ONE);
    let _: Router = Router::new().layer(layer);
    let layer = RateLimitLayer::new(RULE).charge_if(async |_: &Response| true);
    let _: Router = Router::new().layer(layer);
}
