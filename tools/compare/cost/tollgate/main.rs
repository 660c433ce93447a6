use std::net::SocketAddr;

use axum::{Router, routing::get};
use tollgate::prelude::*;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let limit = RateLimitLayer::new(TokenBucket::per_second(10).burst(20)).key(PeerIp::new());
    let app = Router::new().route("/", get(async || "hello\n")).layer(limit);

    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
}
