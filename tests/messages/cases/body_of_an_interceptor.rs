//! An interceptor of tonic below the limit, whose responses have bodies of their own.
//~ error[E0277]: `tollgate::prelude::Grpc` cannot answer
//~ turn it back just below the limit: `.layer(tower_http::map_response_body::MapResponseBodyLayer::new(Body::new))`

use tollgate::{RateLimitLayer, TokenBucket, respond::Grpc};
use tonic::{
    Request,
    service::{InterceptorLayer, Routes},
    transport::Server,
};
use tower::ServiceBuilder;

fn main() {
    let limit = RateLimitLayer::new(TokenBucket::per_second(10)).respond(Grpc::new());
    let check = |request: Request<()>| Ok(request);
    let stack = ServiceBuilder::new().layer(limit).layer(InterceptorLayer::new(check));
    let server = Server::builder().layer(stack).add_routes(Routes::default());
    let _ = server.serve(([127, 0, 0, 1], 0).into());
}
