//! Each API key may ask three times at once, and once more every 3.5 seconds.

use std::io;

use axum::{Router, routing::get};
use http::Request;
use tokio::net::TcpListener;
use tower_governor::{
    GovernorError, GovernorLayer, governor::GovernorConfigBuilder, key_extractor::KeyExtractor,
};

#[tokio::main]
async fn main() -> io::Result<()> {
    serve(TcpListener::bind("127.0.0.1:3000").await?).await
}

/// The API key of a request.
#[derive(Clone)]
struct ApiKey;

impl KeyExtractor for ApiKey {
    type Key = String;

    fn extract<B>(&self, request: &Request<B>) -> Result<String, GovernorError> {
        let key = request.headers().get("x-api-key");
        let key = key.and_then(|value| value.to_str().ok());
        key.map(str::to_owned)
            .ok_or(GovernorError::UnableToExtractKey)
    }
}

pub async fn serve(listener: TcpListener) -> io::Result<()> {
    let config = GovernorConfigBuilder::default()
        .per_millisecond(3500)
        .burst_size(3)
        .key_extractor(ApiKey)
        .finish()
        .expect("numbers above 0");

    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(GovernorLayer::new(config));
    axum::serve(listener, app).await
}
