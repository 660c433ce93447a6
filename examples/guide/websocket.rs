//! Limit the messages of a connection.

// Copy from here.
use axum::{
    Router,
    extract::{Request, State},
    http::StatusCode,
    routing::get,
};
use tollgate::{
    Limiter,
    key::{Extracted, KeyExtractor},
    prelude::*,
};

type Messages = Limiter<TokenBucket, Local<TokenBucket>>;

/// Answers a message. With axum's feature `ws`, the closure of `WebSocketUpgrade::on_upgrade`
/// calls it for each message.
async fn on_message(messages: &Messages, key: Key, message: &str) -> String {
    // Longer messages cost more.
    let cost = Cost::new(message.len() as u64 / 1024).unwrap_or(Cost::ONE);
    let decision = messages.check(key, cost).await;
    match decision.retry_after() {
        _ if decision.is_admitted() => format!("you said {message}"),
        Some(wait) => format!("slow down for {} s", wait.as_secs_f64().ceil()),
        None => "too long".to_owned(),
    }
}

async fn connect(messages: State<Messages>, request: Request) -> Result<String, StatusCode> {
    // By the layer's extractor: it takes all addresses of an IPv6 client for one.
    match PeerIp::new().extract(&request) {
        Ok(Extracted::Key(key)) => Ok(on_message(&messages, key, "hello").await),
        _ => Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

fn app() -> Result<(Router, Messages), tollgate::Error> {
    let limit = RateLimitLayer::new(TokenBucket::per_hour(3))
        .named("client")
        .key(PeerIp::new());
    let messages = limit.limiter("client")?;
    let app = Router::new().route("/ws", get(connect)).layer(limit);
    Ok((app.with_state(messages.clone()), messages))
}
// Copy to here.

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::extract::ConnectInfo;

    use super::*;
    use crate::client;

    async fn say_hello(app: &Router, peer: &str) -> String {
        let peer: SocketAddr = peer.parse().unwrap();
        let mut request = client::get("/ws", "");
        request.extensions_mut().insert(ConnectInfo(peer));
        client::text(app, request).await
    }

    /// Before, messages were charged to the address as it is, which is another key than that of the
    /// layer.
    #[tokio::test]
    async fn a_connection_and_its_messages_share_a_budget() {
        for (peer, same_client) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("127.0.0.1:1", "[::ffff:127.0.0.1]:2"),
            ("[2001:db8::1]:1", "[2001:db8::2]:2"),
        ] {
            let (app, _) = app().unwrap();
            // The request and its first message, and another request.
            assert_eq!(say_hello(&app, peer).await, "you said hello");
            let answer = say_hello(&app, same_client).await;
            assert_eq!(answer, "slow down for 1200 s", "{same_client}");
        }
    }
}
