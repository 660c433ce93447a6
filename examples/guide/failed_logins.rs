//! Stop clients that guess passwords.

// Copy from here.
use axum::{Router, http::StatusCode, response::Response, routing::post};
use tollgate::prelude::*;

async fn login(password: String) -> Result<&'static str, StatusCode> {
    // Checking a password takes its time.
    tokio::task::yield_now().await;
    match &*password {
        "secret" => Ok("welcome"),
        _ => Err(StatusCode::UNAUTHORIZED),
    }
}

fn app() -> Router {
    // By user name; an address is easy to change.
    let limit = RateLimitLayer::new(TokenBucket::per_hour(3))
        .named("failed-logins")
        .key(Header::new("x-user"))
        .charge_after(|response: &Response| response.status() == StatusCode::UNAUTHORIZED);
    Router::new().route("/login", post(login)).layer(limit)
}
// Copy to here.

#[cfg(test)]
mod tests {
    use axum::{body::Body, extract::Request};
    use futures_util::future::join_all;

    use super::*;
    use crate::client;

    #[tokio::test]
    async fn only_failures_count_also_at_once() {
        let app = app();
        let send = |password: &'static str| {
            let request = Request::post("/login").header("x-user", "alice");
            client::status(&app, request.body(Body::from(password)).unwrap())
        };
        assert_eq!(join_all((0..10).map(|_| send("secret"))).await, [200; 10]);
        let answers = join_all((0..10).map(|_| send("guess"))).await;
        assert_eq!(answers.iter().filter(|status| **status == 401).count(), 3);
        assert_eq!(send("secret").await, 429);
    }
}
