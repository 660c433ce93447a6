//! Each API key may ask three times at once, and once more every 3.5 seconds.

use std::{io, time::Duration};

use axum::{Router, routing::get};
use http::Request;
use tokio::net::TcpListener;
use tollgate::{
    RateLimitLayer, TokenBucket,
    key::{Extracted, Key, KeyExtractor, MissingKey},
};

#[tokio::main]
async fn main() -> io::Result<()> {
    serve(TcpListener::bind("127.0.0.1:3000").await?).await
}

/// The API key of a request.
#[derive(Clone)]
struct ApiKey;

impl<B> KeyExtractor<Request<B>> for ApiKey {
    fn extract(&self, request: &Request<B>) -> Result<Extracted, MissingKey> {
        let key = request.headers().get("x-api-key");
        let key = key.and_then(|value| value.to_str().ok());
        key.map(|key| Key::from(key).into())
            .ok_or(MissingKey::new("expected `x-api-key`"))
    }
}

pub async fn serve(listener: TcpListener) -> io::Result<()> {
    let rule = TokenBucket::one_every(Duration::from_millis(3500)).burst(3);

    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(RateLimitLayer::new(rule).key(ApiKey));
    axum::serve(listener, app).await
}
