//! Handles of charges that are not there, and requests that cannot carry one.
//~ error[E0277]: a limit that charges after the response has no charge to hand over
//~ 2 x error[E0277]: this limit has a condition already
//~ error[E0277]: a limit with a charge handle charges before the response
//~ error[E0277]: this limit has a charge handle already
//~ error[E0277]: `u32` cannot carry a charge handle to its handler
//~ implement `tollgate::CarryHandle`

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
    let _ = limit().charge_after(|_: &Response<()>| true).charge_if(|_: &Response<()>| true);
    let _ = limit().charge_handle().charge_after(|_: &Response<()>| true);
    let _ = limit().charge_handle().charge_handle();

    let layer = RateLimitLayer::new(TokenBucket::per_hour(3)).respond(AsError).charge_handle();
    let inner = service_fn(async |job: u32| Ok::<_, Refused>(job));
    work(ServiceBuilder::new().layer(layer).service(inner));
}
