//! Test an application that has limits, without sleeping.

// Copy from here.
use std::convert::Infallible;

use axum::{Router, routing::get};
use tollgate::{prelude::*, store::BoxStore};

/// The program calls `app(Local::new().boxed())`, or names a shared store.
fn app(store: BoxStore<TokenBucket, Infallible>) -> Router {
    let limit = RateLimitLayer::new(TokenBucket::per_minute(1))
        .key(Header::new("x-api-key"))
        .store(store);
    Router::new().route("/", get(async || "hello")).layer(limit)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::{body::Body, extract::Request};
    use tollgate::time::ManualClock;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn one_request_a_minute() {
        let clock = ManualClock::default();
        let app = app(LocalBuilder::new().clock(clock.clone()).build().boxed());
        let status = async || {
            let request = Request::get("/").header("x-api-key", "alice");
            let request = request.body(Body::empty()).unwrap();
            app.clone()
                .oneshot(request)
                .await
                .unwrap()
                .status()
                .as_u16()
        };
        assert_eq!((status().await, status().await), (200, 429));
        clock.advance(Duration::from_secs(59));
        assert_eq!(status().await, 429);
        clock.advance(Duration::from_secs(1));
        assert_eq!(status().await, 200);
    }
}
// Copy to here.
