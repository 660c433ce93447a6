//! Each client address may send five requests at once, and one more every four seconds.

use std::{io, net::SocketAddr, time::Duration};

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tollgate::prelude::*;

#[tokio::main]
async fn main() -> io::Result<()> {
    serve(TcpListener::bind("127.0.0.1:3000").await?).await
}

pub async fn serve(listener: TcpListener) -> io::Result<()> {
    let rule = TokenBucket::one_every(Duration::from_secs(4)).burst(5);

    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(RateLimitLayer::new(rule).key(PeerIp::new()));
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
