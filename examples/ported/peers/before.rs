//! Each client address may send five requests at once, and one more every four seconds.

use std::{io, net::SocketAddr, time::Duration};

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};

#[tokio::main]
async fn main() -> io::Result<()> {
    serve(TcpListener::bind("127.0.0.1:3000").await?).await
}

pub async fn serve(listener: TcpListener) -> io::Result<()> {
    let config = GovernorConfigBuilder::default()
        .per_second(4)
        .burst_size(5)
        .finish()
        .expect("numbers above 0");

    // Forget clients that have not come for a while.
    let limiter = config.limiter().clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(60)).await;
            limiter.retain_recent();
        }
    });

    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(GovernorLayer::new(config));
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
