//! OAuth tokens, and plans from the authorization server.

// Copy from here.
use std::time::Duration;

use axum::{Router, extract::Request, routing::get};
use tollgate::{
    key::{
        Extension, Introspect,
        introspect::{Endpoint, Introspected},
    },
    prelude::*,
};

fn app(url: &str, secret: &str) -> Result<Router, tollgate::Error> {
    let endpoint = Endpoint::new(url)?.basic("api", secret).plan_claim("tier");
    let introspect = Introspect::builder(endpoint)
        .allow_anonymous()
        .serve_stale(Duration::from_secs(600))
        .build()?;
    let per_subject = RateLimitLayer::new(TokenBucket::per_hour(2))
        .named("subject")
        .key(Extension::new(Introspected::key).or(PeerIp::new()))
        .rule(|request: &Request| {
            let token = request.extensions().get::<Introspected>()?;
            (token.claims()?.plan()? == "gold").then(|| TokenBucket::per_hour(5))
        });
    let per_address = RateLimitLayer::new(TokenBucket::per_hour(100))
        .named("address")
        .key(PeerIp::new());
    Ok(Router::new()
        .route("/", get(async || "hello"))
        // From the innermost to the outermost.
        .layer(per_subject)
        .layer(introspect)
        .layer(per_address))
}
// Copy to here.

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, net::SocketAddr};

    use axum::{Form, body::Body, extract::connect_info::MockConnectInfo, routing::post};
    use tokio::net::TcpListener;

    use super::*;
    use crate::client;

    /// Starts an authorization server, and returns its address.
    async fn authorization_server() -> SocketAddr {
        let introspect = async |Form(form): Form<HashMap<String, String>>| match &*form["token"] {
            "anns" => r#"{"active":true,"sub":"ann","tier":"gold"}"#,
            "bobs" => r#"{"active":true,"sub":"bob"}"#,
            _ => r#"{"active":false}"#,
        };
        let routes: Router = Router::new().route("/introspect", post(introspect));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, routes).await });
        address
    }

    #[tokio::test]
    async fn a_token_has_the_budget_of_its_plan() {
        let url = format!("http://{}/introspect", authorization_server().await);
        let peer = SocketAddr::from(([192, 0, 2, 1], 4711));
        let app = app(&url, "s3cret").unwrap().layer(MockConnectInfo(peer));
        let admitted = async |token: Option<&str>| {
            let request = || {
                let mut request = Request::new(Body::empty());
                if let Some(token) = token {
                    let value = format!("Bearer {token}").parse().unwrap();
                    request.headers_mut().insert("authorization", value);
                }
                request
            };
            client::admitted(&app, request).await
        };
        assert_eq!(admitted(Some("anns")).await, 5);
        assert_eq!(admitted(Some("bobs")).await, 2);
        assert_eq!(admitted(Some("guessed")).await, 0);
        assert_eq!(admitted(None).await, 2);
    }
}
