//! A service's error that no refusal can become.
//~ error[E0277]: `AsError` cannot answer `http::Request<String>` with `Response<String>` or the error `std::io::Error`
//~ `.respond(AsError)` needs the service's error to be `From<Refused>`

mod parts;

use std::io;

use tollgate::{RateLimitLayer, TokenBucket, respond::AsError};
use tower::ServiceBuilder;

fn main() {
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).respond(AsError);
    let service = parts::service::<String, io::Error>();
    parts::serve(ServiceBuilder::new().layer(layer).service(service));
}
