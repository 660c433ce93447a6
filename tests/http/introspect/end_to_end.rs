//! The layer with a limit inside: key and rule from the token.

use tollgate::{
    RateLimitLayer, TokenBucket,
    key::{
        Extension,
        introspect::{Endpoint, Introspect, Introspected},
    },
    prelude::*,
};

use crate::introspect::server::{Reply, Server};

fn plan_of<B>(request: &http::Request<B>) -> Option<&str> {
    request.extensions().get::<Introspected>()?.claims()?.plan()
}

#[cfg(feature = "axum")]
#[tokio::test(flavor = "current_thread")]
async fn two_plans_have_two_quotas_in_axum() {
    use axum::{Router, body::Body, extract::Request, routing::get};
    use tower::ServiceExt;

    let server = Server::start(Reply::Close).await;
    let answer = |user: &str, plan: &str| {
        let body = format!(r#"{{"active":true,"sub":"{user}","tier":"{plan}"}}"#);
        server.set(Reply::Full("200 OK", body));
    };
    let endpoint = Endpoint::new(&server.url()).unwrap().plan_claim("tier");
    let introspect = Introspect::new(endpoint);
    let limit = RateLimitLayer::new(TokenBucket::per_hour(2))
        .key(Extension::new(Introspected::key))
        .rule(|request: &Request| {
            (plan_of(request) == Some("gold")).then(|| TokenBucket::per_hour(5))
        });
    let app: Router = Router::new()
        .route("/", get(async || "hello"))
        .layer(limit)
        .layer(introspect.clone());
    let admitted = async |token: &str| {
        let mut statuses = Vec::new();
        for _ in 0..10 {
            let request = Request::get("/").header("authorization", format!("Bearer {token}"));
            let request = request.body(Body::empty()).unwrap();
            statuses.push(
                app.clone()
                    .oneshot(request)
                    .await
                    .unwrap()
                    .status()
                    .as_u16(),
            );
        }
        assert!(
            statuses.iter().all(|status| [200, 429].contains(status)),
            "{statuses:?}"
        );
        statuses.iter().filter(|status| **status == 200).count()
    };
    answer("ann", "gold");
    assert_eq!(admitted("anns-laptop").await, 5);
    assert_eq!(
        admitted("anns-phone").await,
        0,
        "another token of the same user"
    );
    answer("bob", "free");
    assert_eq!(admitted("bobs-laptop").await, 2);
    assert_eq!(server.take_requests().len(), 3);
    server.stop().await;
}

#[cfg(feature = "tonic")]
#[tokio::test(flavor = "current_thread")]
async fn grpc_gets_its_own_answers() {
    use http::{Request, Response};
    use tonic::body::Body;
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    let server = Server::start(Reply::Full("200 OK", r#"{"active":false}"#.to_owned())).await;
    let introspect = Introspect::builder(Endpoint::new(&server.url()).unwrap())
        .respond(Grpc::new())
        .build()
        .unwrap();
    let limit = RateLimitLayer::new(TokenBucket::per_hour(1))
        .key(Extension::new(Introspected::key))
        .respond(Grpc::new());
    let inner = service_fn(async |_: Request<Body>| {
        Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
    });
    let service = ServiceBuilder::new()
        .layer(introspect)
        .layer(limit)
        .service(inner);
    let call = async |token: &str| {
        let request = Request::post("/reports.Reports/List")
            .header("content-type", "application/grpc")
            .header("authorization", format!("Bearer {token}"));
        let response = service
            .clone()
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        let field = |name: &str| {
            response
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        (field("grpc-status"), field("grpc-retry-pushback-ms"))
    };
    let status = |code: &str| Some(code.to_owned());
    // UNAUTHENTICATED, UNAVAILABLE, admitted, RESOURCE_EXHAUSTED.
    assert_eq!(call("revoked").await.0, status("16"));
    server.set(Reply::Close);
    assert_eq!(call("unknown").await, (status("14"), status("1000")));
    server.set(Reply::Full(
        "200 OK",
        r#"{"active":true,"client_id":"worker"}"#.to_owned(),
    ));
    assert_eq!(call("good").await.0, None);
    assert_eq!(call("good").await.0, status("8"));
    server.stop().await;
}
