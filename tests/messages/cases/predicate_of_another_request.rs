//! An exemption of another request type than the service's.
//~ error[E0277]: `ExemptIf<PeerIp, {closure@predicate_of_another_request.rs:
//~ a closure `|request: &http::Request<Body>| …`

use axum::Router;
use http::Request;
use tollgate::{prelude::*, RateLimitLayer, TokenBucket};

fn main() {
    let key = PeerIp::new().exempt_if(|request: &Request<()>| request.uri().path() == "/health");
    let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(key);
    let _: Router = Router::new().layer(layer);
}
