//! Answers whose cost is known afterwards, such as tokens of a language model.

// Copy from here.
use std::convert::Infallible;

use axum::{Extension, Router, body::Body, response::Response, routing::post};
use futures_util::{StreamExt, stream};
use tollgate::{ChargeHandle, prelude::*};

async fn answer(Extension(charge): Extension<ChargeHandle>) -> Response {
    // Counts until the stream has ended or is dropped, and then settles.
    let usage = charge.usage().expect("nobody else settles this charge");
    let tokens = stream::iter(["The", " answer", " is", " 42"]).map(move |token| {
        usage.add(1);
        Ok::<_, Infallible>(token)
    });
    Response::new(Body::from_stream(tokens))
}

fn app() -> Router {
    let by_customer = || Header::new("x-api-key");
    let tokens = Limit::new(TokenBucket::per_day(10_000))
        .named("tokens")
        .key(by_customer())
        // The most that an answer may have; a closure can read it from the request.
        .cost(Cost::new(1_000).unwrap())
        .charge_handle();
    let limit = RateLimitLayer::new(TokenBucket::per_minute(60))
        .named("requests")
        .key(by_customer())
        .also(tokens);
    Router::new().route("/", post(answer)).layer(limit)
}
// Copy to here.

#[cfg(test)]
mod tests {
    use axum::extract::Request;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn the_estimate_is_reserved_until_the_answer_has_ended() {
        let app = app();
        let ask = async || {
            let request = Request::post("/").header("x-api-key", "alice");
            let request = request.body(Body::empty()).unwrap();
            app.clone().oneshot(request).await.unwrap()
        };
        let remaining = |response: &Response| {
            let fields = response.headers()["ratelimit"].to_str().unwrap();
            fields.to_owned()
        };
        let first = ask().await;
        let fields = remaining(&first);
        assert!(fields.contains("\"tokens\";r=9000;"), "{fields}");
        first.into_body().collect().await.unwrap();
        let fields = remaining(&ask().await);
        assert!(fields.contains("\"tokens\";r=8996;"), "{fields}");
    }
}
