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
        .charge_if(|response: &Response| response.status() == StatusCode::UNAUTHORIZED);
    Router::new().route("/login", post(login)).layer(limit)
}
// Copy to here.

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use axum::{body::Body, extract::Request};
    use futures_util::{future::join_all, stream};

    use super::*;
    use crate::client;

    fn request(password: Body) -> Request {
        let request = Request::post("/login").header("x-user", "alice");
        request.body(password).unwrap()
    }

    #[tokio::test]
    async fn only_failures_count() {
        let app = app();
        let send = |password: &'static str| client::status(&app, request(password.into()));
        for _ in 0..10 {
            assert_eq!(send("secret").await, 200);
        }
        for _ in 0..3 {
            assert_eq!(send("guess").await, 401);
        }
        assert_eq!(send("secret").await, 429);
    }

    /// Before, the limit only looked at first, so all guesses of a burst were tried, and the right
    /// one was answered.
    #[tokio::test]
    async fn a_burst_tries_no_more_guesses() {
        static TRIED: AtomicUsize = AtomicUsize::new(0);
        let app = app();
        let send = |password: &'static str| {
            // The login that is tried reads its body.
            let body = stream::once(async move {
                TRIED.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(password)
            });
            client::status(&app, request(Body::from_stream(body)))
        };
        let guesses = (0..49).map(|_| "guess").chain(["secret"]);
        let answers = join_all(guesses.map(send)).await;
        assert_eq!(TRIED.load(Ordering::Relaxed), 3);
        assert_eq!(answers[..3], [401; 3]);
        assert_eq!(answers[3..], [429; 47]);
    }
}
