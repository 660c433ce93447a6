//! Limits of several routes from a TOML file, which is followed while the server runs.
//!
//! `cargo run --features axum,config --example limits_file -- examples/limits_file/limits.toml`

use std::{env, error::Error, fs, net::SocketAddr};

use axum::{
    Router,
    routing::{get, post},
};
use tokio::net::TcpListener;
use tollgate::config::RouteLimits;

#[cfg(test)]
mod tests;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

async fn serve(path: String, listener: TcpListener) -> Result<()> {
    let limits = RouteLimits::new(&fs::read_to_string(&path)?)?;
    for warning in limits.file().warnings() {
        eprintln!("{path}:{warning}");
    }
    limits.watch(&path)?;
    let app = Router::new()
        .route("/search", get(async || "found\n"))
        .route("/upload", post(async || "stored\n"))
        .layer(limits);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let path = env::args().nth(1).ok_or("expected a TOML file")?;
    serve(path, TcpListener::bind("127.0.0.1:3000").await?).await
}
