//! Limit the requests of each client address.

// Copy from here.
use std::net::SocketAddr;

use axum::{Router, routing::get};
use tollgate::prelude::*;

fn app() -> Router {
    // Each client address may send 10 requests per second, and 20 at once.
    let limit = RateLimitLayer::new(TokenBucket::per_second(10).burst(20)).key(PeerIp::new());
    Router::new()
        .route("/", get(async || "hello\n"))
        .layer(limit)
}

async fn serve(listener: tokio::net::TcpListener) -> std::io::Result<()> {
    let app = app().into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
// Copy to here.

#[cfg(test)]
mod tests {
    use axum::extract::ConnectInfo;

    use super::*;
    use crate::client;

    #[tokio::test]
    async fn each_address_has_a_budget() {
        let app = app();
        let send = async |address: u8| {
            let mut request = client::get("/", "");
            let peer = SocketAddr::from(([192, 0, 2, address], 4711));
            request.extensions_mut().insert(ConnectInfo(peer));
            client::status(&app, request).await
        };
        let mut admitted = 0;
        while send(1).await == 200 {
            admitted += 1;
            assert!(admitted < 10_000, "one address sends what it likes");
        }
        assert!(admitted >= 20, "{admitted}");
        assert_eq!(send(2).await, 200);
    }

    #[tokio::test]
    async fn a_server_knows_the_address_of_its_client() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener));
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("\"default\";r=19;t=2"), "{answer}");
    }
}
