//! Large requests cost more.

// Copy from here.
use axum::{
    Router,
    body::{Bytes, HttpBody},
    extract::{DefaultBodyLimit, Request},
    routing::post,
};
use tollgate::{Policy, Unit, prelude::*};

/// The largest body, in bytes.
const LARGEST: u64 = 1 << 20;

fn app() -> Router {
    let bytes = |request: &Request| {
        let size = request.body().size_hint().upper().unwrap_or(LARGEST);
        Cost::new(size.min(LARGEST)).unwrap_or(Cost::ONE)
    };
    // 100 MiB per hour, and 4 MiB at once.
    let limit = RateLimitLayer::new(TokenBucket::per_hour(100 * LARGEST).burst(4 * LARGEST))
        // The fields of the response say that it counts bytes.
        .policy(Policy::new("upload").with_unit(Unit::ContentBytes))
        .key(Header::new("x-api-key"))
        .cost(bytes);
    Router::new()
        .route("/files", post(async |body: Bytes| body.len().to_string()))
        .layer(DefaultBodyLimit::max(LARGEST as usize))
        .layer(limit)
}
// Copy to here.

#[cfg(test)]
mod tests {
    use std::io;

    use axum::body::Body;
    use futures_util::stream;

    use super::*;
    use crate::client;

    #[tokio::test]
    async fn a_body_costs_its_size_or_the_most_that_is_read() {
        let app = app();
        let upload = async |key: &str, body: Body| {
            let request = Request::post("/files").header("x-api-key", key);
            client::status(&app, request.body(body).unwrap()).await
        };
        let half = || Body::from(vec![0; LARGEST as usize / 2]);
        for _ in 0..8 {
            assert_eq!(upload("alice", half()).await, 200);
        }
        assert_eq!(upload("alice", half()).await, 429);
        let chunked = || Body::from_stream(stream::iter([Ok::<_, io::Error>("small")]));
        for _ in 0..4 {
            assert_eq!(upload("bob", chunked()).await, 200);
        }
        assert_eq!(upload("bob", chunked()).await, 429);
    }
}
