//! The bodies of refused uploads, which are read on by a responder that is told to.

mod bodies;
mod bounds;
mod connections;
// By this name, `./test.sh quick` leaves it out.
mod processes;

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use axum::{Router, body::Bytes, extract::DefaultBodyLimit, routing::post};
use tokio::{net::TcpListener, task::yield_now, time::timeout};
use tollgate::{
    RateLimitLayer, TokenBucket,
    respond::{DrainBodies, DrainStats},
};

const SOON: Duration = Duration::from_secs(20);

/// Lets one request pass, and answers an upload with its length.
fn app(respond: Option<&DrainBodies>) -> Router {
    let upload = post(async |body: Bytes| format!("{} bytes", body.len()));
    let app = Router::new()
        .route("/", upload)
        .layer(DefaultBodyLimit::disable());
    let limit = RateLimitLayer::new(TokenBucket::per_hour(1));
    match respond {
        Some(respond) => app.layer(limit.respond(respond.clone())),
        None => app.layer(limit),
    }
}

/// Serves until the test's runtime ends.
async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Waits until no body is being read.
async fn ended(respond: &DrainBodies) -> DrainStats {
    let ended = async {
        while respond.stats().in_flight > 0 {
            yield_now().await;
        }
    };
    timeout(SOON, ended).await.expect("an end in time");
    respond.stats()
}
