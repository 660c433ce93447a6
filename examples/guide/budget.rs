//! The whole budget of a client, and a reserve of the server for what matters.

// Copy from here.
use axum::{
    Router,
    extract::Request,
    routing::{get, post},
};
use tollgate::{InFlight, prelude::*};

fn app() -> Result<Router, tollgate::Error> {
    // The server bears 100 calls a second, and searches leave 20 of them to payments.
    let server = TokenBucket::per_second(100);
    let important = AnyRule::from(server);
    let server = Limit::try_new(AnyRule::from(server.try_keep_free(20)?))?
        .named("server")
        .rule(move |request: &Request| {
            let is_important = request.uri().path() == "/payments";
            is_important.then(|| important.clone())
        });
    // Each client address may send 10 a second, and have 4 in flight.
    let rate = Limit::try_new(AnyRule::from(TokenBucket::per_second(10)))?
        .named("rate")
        .key(PeerIp::new());
    let calls = Limit::try_new(AnyRule::from(InFlight::try_at_most(4)?))?
        .named("calls")
        .key(PeerIp::new());
    let limit = RateLimitLayer::from(server)
        .try_also(rate)?
        .try_also(calls)?;
    Ok(Router::new()
        .route("/search", get(async || "found"))
        .route("/payments", post(async || "paid"))
        .layer(limit))
}
// Copy to here.

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::{body::Body, extract::ConnectInfo, response::Response};
    use tower::ServiceExt as _;

    use super::*;

    async fn ask(app: &Router, path: &str, client: u16) -> Response {
        let request = match path {
            "/payments" => Request::post(path),
            _ => Request::get(path),
        };
        let peer = SocketAddr::from(([192, 0, (client >> 8) as u8, client as u8], 4711));
        let request = request.extension(ConnectInfo(peer)).body(Body::empty());
        app.clone().oneshot(request.unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn a_client_has_a_rate_and_calls_in_flight() {
        let app = app().unwrap();
        let mut open = Vec::new();
        for n in 0..5 {
            let response = ask(&app, "/search", 1).await;
            assert_eq!(response.status() == 200, n < 4, "{n}");
            open.push(response);
        }
        assert_eq!(ask(&app, "/search", 2).await.status(), 200);
        drop(open);
        // The refused call was charged by no limit.
        for n in 4..11 {
            assert_eq!(ask(&app, "/search", 1).await.status() == 200, n < 10, "{n}");
        }
    }

    #[tokio::test]
    async fn searches_of_all_leave_some_to_payments() {
        let app = app().unwrap();
        // Of clients that are far below their own limits.
        let mut searches = 0;
        while ask(&app, "/search", searches / 5).await.status() == 200 {
            searches += 1;
            assert!(searches < 50_000, "the server bears all searches");
        }
        assert!(searches >= 80, "{searches}");
        assert_eq!(ask(&app, "/payments", u16::MAX).await.status(), 200);
    }
}
