//! One limit for a fleet that may be exceeded a little, decided in memory.

// Copy from here.
use std::time::Duration;

use axum::{Router, routing::get};
use tollgate::{
    prelude::*,
    store::{BoxStore, CircuitBreakerConfig, StoreError, SyncConfig, Synced},
};

type Shared = BoxStore<TokenBucket, StoreError>;
type Node = Synced<Shared, TokenBucket>;

/// A node, and the handle to push what is unsynced. `shared` is the store of all nodes.
fn node(shared: Shared) -> Result<(Router, Node), tollgate::Error> {
    let shared = shared
        .timeout(Duration::from_millis(100))
        .circuit_breaker(CircuitBreakerConfig::new())
        .boxed();
    let synced = shared.synced(SyncConfig::new().overshoot_percent(5));
    let limit = RateLimitLayer::try_new(TokenBucket::per_second(1000))?
        .named("api")
        .key(Header::new("x-api-key"))
        .try_store(synced.clone().fail_open())?;
    let app = Router::new().route("/", get(async || "hello")).layer(limit);
    Ok((app, synced))
}

/// After the last request.
async fn stop(node: &Node) {
    let unsynced = node.flush(Duration::from_secs(2)).await;
    println!("{unsynced} units were not pushed to the store");
}
// Copy to here.

#[cfg(test)]
mod tests {
    use tollgate::testing::Faulty;

    use super::*;
    use crate::client;

    #[tokio::test]
    async fn a_node_serves_and_stops() {
        let (app, node) = node(Faulty::new(Local::new()).boxed()).unwrap();
        assert_eq!(client::status(&app, client::get("/", "alice")).await, 200);
        stop(&node).await;
    }
}
