//! Important calls among others.

// Copy from here.
use axum::{
    Router,
    extract::Request,
    routing::{get, post},
};
use tollgate::prelude::*;

fn app() -> Router {
    // What the database bears. Two calls of ten are left to payments.
    let bucket = TokenBucket::per_minute(10);
    let limit = RateLimitLayer::new(bucket.keep_free(2))
        .named("database")
        .rule(move |request: &Request| {
            let is_important = request.uri().path() == "/payments";
            is_important.then_some(bucket)
        });
    Router::new()
        .route("/search", get(async || "found"))
        .route("/payments", post(async || "paid"))
        .layer(limit)
}
// Copy to here.

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;
    use crate::client;

    fn payment() -> Request {
        Request::post("/payments").body(Body::empty()).unwrap()
    }

    #[tokio::test]
    async fn searches_leave_two_calls_to_payments() {
        let app = app();
        let search = || client::get("/search", "");
        assert_eq!(client::admitted(&app, search).await, 8);
        assert_eq!(client::admitted(&app, payment).await, 2);
        assert_eq!(client::status(&app, search()).await, 429);
    }

    #[tokio::test]
    async fn payments_may_take_all() {
        let app = app();
        assert_eq!(client::admitted(&app, payment).await, 10);
        assert_eq!(client::status(&app, client::get("/search", "")).await, 429);
    }

    #[tokio::test]
    async fn the_fields_show_the_caller_what_it_has() {
        use tower::ServiceExt as _;

        let fields = async |request: Request| {
            let response = app().oneshot(request).await.unwrap();
            ["ratelimit-policy", "ratelimit"].map(|name| {
                let value = response.headers()[name].to_str().unwrap();
                value.to_owned()
            })
        };
        let [policy, left] = fields(client::get("/search", "")).await;
        assert_eq!(policy, r#""database";q=8;w=48"#);
        assert!(left.starts_with(r#""database";r=7"#), "{left}");
        let [policy, left] = fields(payment()).await;
        assert_eq!(policy, r#""database";q=10;w=60"#);
        assert!(left.starts_with(r#""database";r=9"#), "{left}");
    }
}
