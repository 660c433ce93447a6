//! Behind a proxy on this machine, which appends the address of each client to `X-Forwarded-For`.
//!
//! Each client may post five comments at once, and one more every four seconds; reading is free.
//! Browsers show how many comments are left.

use std::{io, net::SocketAddr};

use axum::{Router, routing::get};
use http::Method;
use tokio::net::TcpListener;
use tower_governor::{
    GovernorLayer, governor::GovernorConfigBuilder, key_extractor::SmartIpKeyExtractor,
};

#[tokio::main]
async fn main() -> io::Result<()> {
    serve(TcpListener::bind("127.0.0.1:3000").await?).await
}

pub async fn serve(listener: TcpListener) -> io::Result<()> {
    let config = GovernorConfigBuilder::default()
        .per_second(4)
        .burst_size(5)
        .methods(vec![Method::POST])
        .key_extractor(SmartIpKeyExtractor)
        .use_headers()
        .finish()
        .expect("numbers above 0");

    let comments = get(async || "all comments\n").post(async || "thank you\n");
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .route("/comments", comments)
        .layer(GovernorLayer::new(config));
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
