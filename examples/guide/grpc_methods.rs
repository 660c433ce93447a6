//! A lower limit for an expensive service or method of gRPC.

// Copy from here.
use tollgate::{
    key::{Key, from_fn},
    prelude::*,
};
use tonic::{
    body::Body,
    service::{LayerExt, Routes},
};

const EXPORT: &str = "/reports.Reports/Export";

/// `Server::builder()` has the same `add_service`.
fn routes(reports: ReportsServer, health: HealthServer) -> Routes {
    let by_method = from_fn(|request: &http::Request<Body>| {
        Key::shared(if request.uri().path() == EXPORT {
            "export"
        } else {
            "others"
        })
    });
    let limit = RateLimitLayer::new(TokenBucket::per_hour(5))
        .key((Header::new("x-api-key"), by_method))
        .rule(|request: &http::Request<Body>| {
            (request.uri().path() == EXPORT).then(|| TokenBucket::per_hour(2))
        })
        .respond(Grpc::new());
    Routes::default()
        .add_service(limit.named_layer(reports))
        .add_service(health) // not limited
}
// Copy to here.

/// Stands for generated code: a service that answers each call with an empty message.
macro_rules! server {
    ($server:ident, $name:literal) => {
        #[derive(Clone)]
        struct $server;

        impl tonic::server::NamedService for $server {
            const NAME: &'static str = $name;
        }

        impl tower::Service<http::Request<Body>> for $server {
            type Response = http::Response<Body>;
            type Error = std::convert::Infallible;
            type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

            fn poll_ready(
                &mut self,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Result<(), Self::Error>> {
                std::task::Poll::Ready(Ok(()))
            }

            fn call(&mut self, _: http::Request<Body>) -> Self::Future {
                std::future::ready(Ok(http::Response::new(Body::empty())))
            }
        }
    };
}

server!(ReportsServer, "reports.Reports");
server!(HealthServer, "grpc.health.v1.Health");

#[cfg(test)]
mod tests {
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_method_has_its_own_budget() {
        let app = routes(ReportsServer, HealthServer).into_axum_router();
        // Of ten calls.
        let admitted = async |path: &str| {
            let mut admitted = 0;
            for _ in 0..10 {
                let request = http::Request::post(path).header("x-api-key", "alice");
                let request = request.header("content-type", "application/grpc");
                let request = request.body(axum::body::Body::empty()).unwrap();
                let response = app.clone().oneshot(request).await.unwrap();
                let status = response.headers().get("grpc-status");
                assert!(status.is_none_or(|status| status == "8"), "{response:?}");
                admitted += usize::from(status.is_none());
            }
            admitted
        };
        assert_eq!(admitted(EXPORT).await, 2);
        assert_eq!(admitted("/reports.Reports/List").await, 5);
        assert_eq!(admitted("/reports.Reports/Invented").await, 0);
        assert_eq!(admitted("/grpc.health.v1.Health/Check").await, 10);
    }
}
