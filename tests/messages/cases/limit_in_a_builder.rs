//! A limit of several, where a builder of services expects a layer.
//~ error[E0599]: the method `service` exists for struct `ServiceBuilder<Stack<tollgate::Limit<tollgate::TokenBucket>, Identity>>`
//~ `tollgate::Limit<tollgate::TokenBucket>: tollgate::unsatisfied::UseRateLimitLayer`

mod parts;

use std::convert::Infallible;

use tollgate::{Limit, TokenBucket};
use tower::ServiceBuilder;

fn main() {
    let limit = Limit::new(TokenBucket::per_second(10)).named("api");
    let service = parts::service::<String, Infallible>();
    parts::serve(ServiceBuilder::new().layer(limit).service(service));
}
