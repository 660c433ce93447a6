//! The code that `tonic-prost-build` would generate, reduced to what this example uses, so that it
//! builds without `protoc`:
//!
//! ```proto
//! service Greeter { rpc SayHello (HelloRequest) returns (HelloReply); }
//! message HelloRequest { string name = 1; }
//! message HelloReply { string message = 1; }
//! ```

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tonic::{
    Request, Response, Status,
    body::Body,
    client,
    codegen::{StdError, http},
    server::{self, NamedService, UnaryService},
    transport::Channel,
};
use tonic_prost::ProstCodec;
use tower::Service;

const SAY_HELLO: &str = "/greeter.Greeter/SayHello";

type BoxFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HelloRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HelloReply {
    #[prost(string, tag = "1")]
    pub(crate) message: String,
}

/// The service. Its one method is implemented on this struct.
#[derive(Clone, Debug)]
pub(crate) struct Greeter;

impl UnaryService<HelloRequest> for Greeter {
    type Response = HelloReply;
    type Future = BoxFuture<Response<HelloReply>, Status>;

    fn call(&mut self, request: Request<HelloRequest>) -> Self::Future {
        let message = format!("hello, {}", request.into_inner().name);
        Box::pin(async move { Ok(Response::new(HelloReply { message })) })
    }
}

/// Routes calls to the service.
#[derive(Clone, Debug)]
pub(crate) struct GreeterServer(pub(crate) Greeter);

impl NamedService for GreeterServer {
    const NAME: &'static str = "greeter.Greeter";
}

impl Service<http::Request<Body>> for GreeterServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move {
            if request.uri().path() != SAY_HELLO {
                return Ok(Status::unimplemented("no such method").into_http());
            }
            Ok(server::Grpc::new(ProstCodec::default())
                .unary(service, request)
                .await)
        })
    }
}

/// Calls the service.
pub(crate) struct GreeterClient(client::Grpc<Channel>);

impl GreeterClient {
    pub(crate) async fn connect(url: String) -> Result<Self, StdError> {
        let channel = tonic::transport::Endpoint::new(url)?.connect().await?;
        Ok(Self(client::Grpc::new(channel)))
    }

    pub(crate) async fn say_hello(&mut self, name: &str) -> Result<HelloReply, Status> {
        self.0
            .ready()
            .await
            .map_err(|error| Status::unknown(error.to_string()))?;
        let request = Request::new(HelloRequest {
            name: name.to_owned(),
        });
        let codec = ProstCodec::<HelloRequest, HelloReply>::default();
        let path = http::uri::PathAndQuery::from_static(SAY_HELLO);
        self.0
            .unary(request, path, codec)
            .await
            .map(Response::into_inner)
    }
}
