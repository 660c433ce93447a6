//! Limit each client behind your proxies.

// Copy from here.
use std::net::SocketAddr;

use axum::{Router, routing::get};
use tollgate::prelude::*;

/// `proxies` are the networks of your proxies, as in `["10.0.0.0/8"]`.
fn app(proxies: &[&str]) -> Result<Router, tollgate::Error> {
    let clients = ForwardedFor::try_trusting(proxies)?;
    let limit = RateLimitLayer::new(TokenBucket::per_hour(3)).key(clients);
    Ok(Router::new().route("/", get(async || "hello")).layer(limit))
}

async fn serve(listener: tokio::net::TcpListener, app: Router) -> std::io::Result<()> {
    // The address of the peer shows whether it is a proxy.
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
// Copy to here.

#[cfg(test)]
mod tests {
    use axum::extract::{ConnectInfo, Request};

    use super::*;
    use crate::client;

    const PROXY: [u8; 4] = [10, 0, 0, 1];

    /// Returns a request that the server receives from this peer.
    fn from(peer: [u8; 4], forwarded_for: &str) -> Request {
        let mut request = client::get("/", "");
        let value = forwarded_for.parse().unwrap();
        request.headers_mut().insert("x-forwarded-for", value);
        let peer = SocketAddr::from((peer, 4711));
        request.extensions_mut().insert(ConnectInfo(peer));
        request
    }

    #[tokio::test]
    async fn each_client_behind_the_proxy_has_a_budget() {
        let app = app(&["10.0.0.0/8"]).unwrap();
        for client in ["192.0.2.1", "192.0.2.2"] {
            let admitted = client::admitted(&app, || from(PROXY, client)).await;
            assert_eq!(admitted, 3, "{client}");
        }
    }

    #[tokio::test]
    async fn a_client_cannot_forge_its_address() {
        let app = app(&["10.0.0.0/8"]).unwrap();
        // The client writes another address each time, and the proxy appends the true one.
        let mut admitted = 0;
        for forged in 0..10 {
            let chain = format!("198.51.100.{forged}, 192.0.2.1");
            admitted += usize::from(client::status(&app, from(PROXY, &chain)).await == 200);
        }
        assert_eq!(admitted, 3);
        // Nor does it use up the budget of another client.
        let victim = from(PROXY, "198.51.100.1");
        assert_eq!(client::status(&app, victim).await, 200);
        // Past the proxy, the header says nothing.
        let mut admitted = 0;
        for forged in 0..10 {
            let request = from([192, 0, 2, 9], &format!("198.51.100.{forged}"));
            admitted += usize::from(client::status(&app, request).await == 200);
        }
        assert_eq!(admitted, 3);
    }

    #[tokio::test]
    async fn a_server_knows_the_address_of_its_peer() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, app(&["127.0.0.1"]).unwrap()));
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut last = String::new();
        for client in ["192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"] {
            let mut proxy = tokio::net::TcpStream::connect(address).await.unwrap();
            let request = format!(
                "GET / HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: {client}\r\nconnection: close\r\n\r\n"
            );
            proxy.write_all(request.as_bytes()).await.unwrap();
            last.clear();
            proxy.read_to_string(&mut last).await.unwrap();
            assert!(last.starts_with("HTTP/1.1 200"), "{last}");
        }
        assert!(last.contains("\"default\";r=2;"), "{last}");
    }
}
