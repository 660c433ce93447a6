//! Behind a proxy on this machine, which appends the address of each client to `X-Forwarded-For`.
//!
//! Each client may post five comments at once, and one more every four seconds; reading is free.
//! Browsers show how many comments are left.

use std::{io, net::SocketAddr, time::Duration};

use axum::{Router, extract::Request, routing::get};
use http::Method;
use tokio::net::TcpListener;
use tollgate::prelude::*;

#[tokio::main]
async fn main() -> io::Result<()> {
    serve(TcpListener::bind("127.0.0.1:3000").await?).await
}

pub async fn serve(listener: TcpListener) -> io::Result<()> {
    let rule = TokenBucket::one_every(Duration::from_secs(4)).burst(5);
    let clients = ForwardedFor::try_trusting(["127.0.0.1"]).expect("an address");
    let limit = RateLimitLayer::new(rule)
        .key(clients.exempt_if(|request: &Request| request.method() != Method::POST))
        .respond(Http::new().headers(Headers::Legacy));

    let comments = get(async || "all comments\n").post(async || "thank you\n");
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .route("/comments", comments)
        .layer(limit);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
