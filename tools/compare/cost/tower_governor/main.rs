use std::net::SocketAddr;

use axum::{Router, routing::get};
use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut builder = GovernorConfigBuilder::default();
    builder.per_millisecond(100).burst_size(20);
    let limit = builder.use_headers().finish().unwrap();
    let app = Router::new().route("/", get(async || "hello\n")).layer(GovernorLayer::new(limit));

    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
}
