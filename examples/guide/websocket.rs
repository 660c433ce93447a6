//! Limit the messages of a connection.

// Copy from here.
use std::net::SocketAddr;

use axum::{
    Router,
    extract::{ConnectInfo, State},
    routing::get,
};
use tollgate::{Limiter, prelude::*};

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

async fn connect(
    State(messages): State<Messages>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
) -> String {
    on_message(&messages, peer.ip().into(), "hello").await
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
    use super::*;
    use crate::client;

    #[tokio::test]
    async fn a_connection_and_its_messages_share_a_budget() {
        let (app, messages) = app().unwrap();
        let peer = SocketAddr::from(([127, 0, 0, 1], 4711));
        let mut request = client::get("/ws", "");
        request.extensions_mut().insert(ConnectInfo(peer));
        // The request and its first message.
        assert_eq!(client::status(&app, request).await, 200);
        let say = async |message| on_message(&messages, peer.ip().into(), message).await;
        assert_eq!(say("hi").await, "you said hi");
        assert_eq!(say("hi").await, "slow down for 1200 s");
    }
}
