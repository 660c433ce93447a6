//! Stop clients that guess passwords, if the user's name is in the body.

// Copy from here.
use axum::{
    Form, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use tollgate::{Limiter, Policy, prelude::*};

#[derive(serde::Deserialize)]
struct Login {
    user: String,
    password: String,
}

/// With several nodes, the store is `Redis` with `.fail_closed()`.
type Attempts = Limiter<TokenBucket, Local<TokenBucket>>;

async fn login(State(attempts): State<Attempts>, Form(form): Form<Login>) -> Response {
    // All spellings of a name that the user database takes for one.
    let user = form.user.trim().to_lowercase();
    let decision = attempts.check(user.as_str(), Cost::ONE).await;
    if !decision.is_admitted() {
        let seconds = decision.retry_after().map_or(60, |wait| wait.as_secs() + 1);
        let fields = [("retry-after", seconds.to_string())];
        return (StatusCode::TOO_MANY_REQUESTS, fields).into_response();
    }
    if form.password != "secret" {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    attempts.reset(user.as_str()).await;
    "welcome".into_response()
}

fn app() -> Router {
    let rule = TokenBucket::per_minute(3);
    let attempts = Limiter::new(Policy::new("logins"), rule, Local::new());
    Router::new()
        .route("/login", post(login))
        .with_state(attempts)
}
// Copy to here.

#[cfg(test)]
mod tests {
    use axum::{body::Body, extract::Request};
    use futures_util::future::join_all;

    use super::*;
    use crate::client;

    #[tokio::test]
    async fn a_login_that_succeeds_gives_a_new_budget() {
        let app = app();
        let send = async |user: &str, password: &str| {
            let request = Request::post("/login")
                .header("content-type", "application/x-www-form-urlencoded")
                .body(Body::from(format!("user={user}&password={password}")));
            client::status(&app, request.unwrap()).await
        };
        for (user, password, expected) in [
            ("alice", "guess", 401),
            ("ALICE", "guess", 401),
            ("alice", "secret", 200), // a new budget
            ("alice", "guess", 401),
            ("alice", "guess", 401),
            ("alice", "guess", 401),
            ("alice", "secret", 429),
            ("bob", "secret", 200),
        ] {
            assert_eq!(send(user, password).await, expected);
        }
        let guesses = join_all((0..10).map(|_| send("carol", "guess"))).await;
        assert_eq!(guesses.iter().filter(|status| **status == 401).count(), 3);
    }
}
