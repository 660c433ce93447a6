//! Routes and limits from a file, which may change while the server runs.

// Copy from here.
use std::{error::Error, fs};

use axum::{
    Router,
    body::Body,
    routing::{get, post},
};
use tollgate::config::RouteLimits;

fn limits(path: &str) -> Result<RouteLimits<Body>, Box<dyn Error + Send + Sync>> {
    // All mistakes of the file at once.
    let limits = RouteLimits::new(&fs::read_to_string(path)?)?;
    for warning in limits.file().warnings() {
        eprintln!("{path}:{warning}");
    }
    limits.watch(path)?;
    Ok(limits)
}

fn app(limits: RouteLimits<Body>) -> Router {
    Router::new()
        .route("/search", get(async || "found"))
        .route("/upload", post(async || "stored"))
        .layer(limits)
}
// Copy to here.

#[cfg(test)]
mod tests {
    use std::{env, net::SocketAddr, process};

    use axum::extract::{ConnectInfo, Request};

    use super::*;
    use crate::client;

    /// The file of the page.
    #[tokio::test]
    async fn a_route_has_the_limits_of_the_file() {
        let page = fs::read_to_string("src/guide/a_file.md").unwrap();
        let (_, text) = page.split_once("```toml\n").unwrap();
        let (text, _) = text.split_once("```\n").unwrap();
        let path = env::temp_dir().join(format!("limits-{}.toml", process::id()));
        fs::write(&path, text).unwrap();
        let limits = limits(path.to_str().unwrap());
        fs::remove_file(&path).unwrap();
        let limits = limits.unwrap();
        assert_eq!(limits.file().warnings().len(), 0);

        let app = app(limits.clone());
        let request = |method: &str, path: &str| {
            let peer = SocketAddr::from(([192, 0, 2, 1], 4711));
            let request = Request::builder().method(method).uri(path);
            let request = request.extension(ConnectInfo(peer));
            request.body(Body::empty()).unwrap()
        };
        let search = || request("GET", "/search");
        assert_eq!(client::admitted(&app, search).await, 5);
        let upload = || request("POST", "/upload");
        assert_eq!(client::admitted(&app, upload).await, 2);
        let text = text.replace("sliding-log 5/1h", "sliding-log 7/1h");
        limits.reload(&text).unwrap();
        assert_eq!(client::admitted(&app, search).await, 2);
        assert!(limits.reload(&text.replace("sliding-log", "log")).is_err());
    }
}
