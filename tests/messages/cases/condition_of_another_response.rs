//! A condition on another response than the service's, typed and boxed.
//~ error[E0308]: mismatched types
//~ error[E0631]: type mismatch in closure arguments
//~ expected closure signature `for<'a> fn(&'a Response<Body>)

use axum::{Router, extract::Request};
use http::Response;
use tollgate::{BoxLimit, Limit, RateLimitLayer, TokenBucket};

fn main() {
    let limit = || Limit::new(TokenBucket::per_second(10)).charge_if(|_: &Response<String>| true);
    let _: BoxLimit<Request, TokenBucket> = limit().boxed();
    let _: Router = Router::new().layer(RateLimitLayer::from(limit()));
}
