//! Handles of charges that are not there, and requests that cannot carry one.

use http::Response;
use tollgate::{
    Limit, RateLimitLayer, TokenBucket,
    respond::{AsError, Refused},
};
use tower::{Service, ServiceBuilder, service_fn};

fn work(_: impl Service<u32>) {}

fn main() {
    let limit = || Limit::new(TokenBucket::per_hour(3));
    let _ = limit().charge_after(|_: &Response<()>| true).charge_handle();
    let _ = limit().charge_if(|_: &Response<()>| true).charge_if(|_: &Response<()>| true);

    let layer = RateLimitLayer::new(TokenBucket::per_hour(3)).respond(AsError).charge_handle();
    let inner = service_fn(async |job: u32| Ok::<_, Refused>(job));
    work(ServiceBuilder::new().layer(layer).service(inner));
}
