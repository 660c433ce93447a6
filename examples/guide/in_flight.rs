//! A rate and a number of calls at once for each client.

// Copy from here.
use std::{net::SocketAddr, time::Duration};

use axum::{
    Router,
    routing::{get, post},
};
use tollgate::{InFlight, Permit, prelude::*};

/// Starts a report, which goes on after the response, and holds the permit until it is done.
async fn report(permit: Option<Permit>) -> &'static str {
    tokio::spawn(async move {
        let _held = permit;
        tokio::time::sleep(Duration::from_millis(500)).await;
    });
    "started"
}

fn app() -> Result<Router, tollgate::Error> {
    // 10 requests a second, and 4 at the same time. A report that hangs for ten minutes holds
    // nothing any more.
    let rate: AnyRule = "token-bucket 10/1s burst=20".parse()?;
    let calls = InFlight::try_at_most(4)?.try_max_hold(Duration::from_secs(600))?;
    let calls = Limit::try_new(AnyRule::from(calls))?
        .named("calls")
        .key(PeerIp::new());
    let limit = RateLimitLayer::new(rate)
        .named("rate")
        .key(PeerIp::new())
        .try_also(calls)?;
    Ok(Router::new()
        .route("/", get(async || "hello"))
        .route("/report", post(report))
        .layer(limit))
}

async fn serve(listener: tokio::net::TcpListener, app: Router) -> std::io::Result<()> {
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
// Copy to here.

#[cfg(test)]
mod tests {
    use axum::{body::Body, extract::Request};
    use http::StatusCode;
    use tower::ServiceExt;

    use super::*;

    fn request(request: http::request::Builder, address: u8) -> Request {
        let peer = SocketAddr::from(([192, 0, 2, address], 4711));
        request
            .extension(axum::extract::ConnectInfo(peer))
            .body(Body::empty())
            .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn four_reports_at_a_time() {
        let app = app().unwrap();
        let ask = async |path: &str, address| {
            let request = match path {
                "/" => request(Request::get(path), address),
                _ => request(Request::post(path), address),
            };
            app.clone().oneshot(request).await.unwrap().status()
        };
        for _ in 0..4 {
            assert_eq!(ask("/report", 1).await, StatusCode::OK);
        }
        assert_eq!(ask("/report", 1).await, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(ask("/", 1).await, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(ask("/", 2).await, StatusCode::OK);
        tokio::time::sleep(Duration::from_secs(1)).await;
        // Responses that are read hold nothing.
        for _ in 0..9 {
            assert_eq!(ask("/", 1).await, StatusCode::OK);
        }
    }

    #[tokio::test]
    async fn it_serves() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, app().unwrap()));
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("qu=\"concurrent-requests\""), "{answer}");
    }
}
