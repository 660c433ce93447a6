//! A lower limit for an expensive route.

// Copy from here.
use axum::{Router, routing::get};
use tollgate::prelude::*;

fn app() -> Router {
    let by_client = || Header::new("x-api-key");
    let search = RateLimitLayer::new(TokenBucket::per_hour(2))
        .named("search")
        .key(by_client());
    let api = RateLimitLayer::new(TokenBucket::per_hour(5))
        .named("api")
        .key(by_client());
    Router::new()
        .route("/search", get(async || "found").layer(search))
        .route("/items", get(async || "items"))
        .layer(api)
        // Added after the layer, so not limited.
        .route("/health", get(async || "well"))
}
// Copy to here.

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;

    #[tokio::test]
    async fn a_route_has_its_limit_and_that_of_the_router() {
        let app = app();
        let admitted = async |key, path| client::admitted(&app, || client::get(path, key)).await;
        assert_eq!(admitted("alice", "/items").await, 5);
        assert_eq!(admitted("bob", "/search").await, 2);
        assert_eq!(admitted("carol", "/health").await, 10);
        assert_eq!(admitted("bob", "/items").await, 0);
    }
}
