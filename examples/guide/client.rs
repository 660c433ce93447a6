//! A client for the tests.

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
};
use tower::ServiceExt;

/// Returns a request with an API key.
pub(crate) fn get(path: &str, key: &str) -> Request {
    let request = Request::get(path).header("x-api-key", key);
    request.body(Body::empty()).unwrap()
}

/// Sends a request, and returns the status of the response.
pub(crate) async fn status(app: &Router, request: Request) -> u16 {
    let response = app.clone().oneshot(request).await.unwrap();
    response.status().as_u16()
}

/// Sends ten requests, one after the other, and returns how many are admitted.
pub(crate) async fn admitted(app: &Router, request: impl Fn() -> Request) -> usize {
    let mut admitted = 0;
    for _ in 0..10 {
        let response = app.clone().oneshot(request()).await.unwrap();
        admitted += usize::from(response.status().is_success());
    }
    admitted
}

/// Sends a request, which must succeed, and returns the body of the response.
pub(crate) async fn text(app: &Router, request: Request) -> String {
    let response = app.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}
