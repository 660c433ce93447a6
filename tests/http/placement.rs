//! Layers of axum in several places: the requests that each of them counts.

use axum::{Router, body::Body, extract::Request, routing::get};
use tollgate::{
    RateLimitLayer, TokenBucket,
    key::{Global, Method},
    store::Local,
};
use tower::ServiceExt;

/// Returns the requests that are answered with rate limit fields, and their statuses.
async fn counted(app: Router) -> Vec<(&'static str, u16)> {
    let requests = [
        ("GET", "/a"),
        ("HEAD", "/a"),
        ("POST", "/a"),
        ("OPTIONS", "/a"),
        ("GET", "/nowhere"),
    ];
    let mut counted = Vec::new();
    for (method, path) in requests {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        if response.headers().contains_key("ratelimit") {
            counted.push((method, response.status().as_u16()));
        }
    }
    counted
}

/// The table of the guide.
#[tokio::test]
async fn layers_count_405_and_404_by_their_place() {
    let limit = || RateLimitLayer::new(TokenBucket::per_hour(100));
    let handler = || get(async || "hello");
    let (at, router) = ("/a", Router::new);
    let answered = [("GET", 200), ("HEAD", 200)];
    let not_allowed = [("POST", 405), ("OPTIONS", 405)];

    let on_route = router().route(at, handler().route_layer(limit()));
    assert_eq!(counted(on_route).await, answered);
    let on_method = router().route(at, handler().layer(limit()));
    assert_eq!(counted(on_method).await, [answered, not_allowed].concat());
    let on_routes = router().route(at, handler()).route_layer(limit());
    assert_eq!(counted(on_routes).await, [answered, not_allowed].concat());
    let on_all = router().route(at, handler()).layer(limit());
    let all = [&answered[..], &not_allowed, &[("GET", 404)]].concat();
    assert_eq!(counted(on_all).await, all);
}

/// HEAD under a key with the method, and under one without it.
#[tokio::test]
async fn head_has_a_budget_of_its_own_under_a_key_with_the_method() {
    let left = async |method: &'static str, app: &Router| {
        let request = Request::builder().method(method).uri("/a");
        let request = request.body(Body::empty()).unwrap();
        app.clone().oneshot(request).await.unwrap().status()
    };
    let layer = RateLimitLayer::new(TokenBucket::per_hour(1));
    let route = || Router::new().route("/a", get(async || "hello"));
    let by_method = route().layer(layer.clone().key(Method).store(Local::new()));
    assert_eq!(left("GET", &by_method).await, 200);
    assert_eq!(left("HEAD", &by_method).await, 200);
    let together = route().layer(layer.key(Global).store(Local::new()));
    assert_eq!(left("GET", &together).await, 200);
    assert_eq!(left("HEAD", &together).await, 429);
}
