//! Header fields and answers of your own.

// Copy from here.
use axum::{Router, body::Body, http::HeaderValue, routing::get};
use tollgate::prelude::*;

fn app() -> Router {
    let answers = Http::body(|refusal, parts| {
        let text = HeaderValue::from_static("text/plain");
        parts.headers.insert("content-type", text);
        Body::from(format!("{refusal}\n"))
    });
    let limit = RateLimitLayer::new(TokenBucket::per_hour(2))
        .key(Header::new("x-api-key"))
        // `X-RateLimit-Limit`, `-Remaining`, and `-Reset` in Unix time, not seconds from now.
        .respond(answers.headers(Headers::Legacy));
    Router::new().route("/", get(async || "hello")).layer(limit)
}
// Copy to here.

#[cfg(test)]
mod tests {
    use axum::{body::to_bytes, response::Response};
    use tower::ServiceExt;

    use super::*;
    use crate::client;

    #[tokio::test]
    async fn a_client_reads_the_fields_and_the_text() {
        let app = app();
        let send = async || -> Response {
            let request = client::get("/", "alice");
            app.clone().oneshot(request).await.unwrap()
        };
        for left in ["1", "0"] {
            let admitted = send().await;
            assert_eq!(admitted.headers()["x-ratelimit-limit"], "2");
            assert_eq!(admitted.headers()["x-ratelimit-remaining"], left);
            assert!(!admitted.headers().contains_key("ratelimit"));
        }
        let refused = send().await;
        assert_eq!(refused.status(), 429);
        assert!(refused.headers().contains_key("retry-after"));
        assert_eq!(refused.headers()["content-type"], "text/plain");
        let text = to_bytes(refused.into_body(), 1000).await.unwrap();
        assert!(text.ends_with(b"\n") && text.len() > 10, "{text:?}");
    }
}
