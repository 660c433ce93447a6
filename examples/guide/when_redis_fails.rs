//! Limit requests while Redis is down, too.

// Copy from here.
use std::time::Duration;

use axum::{Router, routing::get};
use tollgate::{
    prelude::*,
    store::{BoxStore, CircuitBreakerConfig, StoreError},
};

type Shared = BoxStore<TokenBucket, StoreError>;

/// Connects now, before a request and its deadline wait for it; or later, so that the program
/// starts while Redis is down, too.
async fn shared(url: &str) -> Result<Shared, StoreError> {
    let redis = match Redis::connect(url).await {
        Ok(redis) => redis,
        Err(error) => {
            eprintln!("starting without Redis: {error}");
            Redis::connect_lazy(url)?
        }
    };
    Ok(redis.boxed())
}

/// One of `nodes` servers. While `shared` fails, it decides by its share of the limit.
fn app(shared: Shared, nodes: u64) -> Result<Router, tollgate::Error> {
    let store = shared
        .timeout(Duration::from_millis(100))
        .circuit_breaker(CircuitBreakerConfig::new())
        .fall_back_to(Local::new())
        .try_share(1, nodes)?;
    let limit = RateLimitLayer::try_new(TokenBucket::per_hour(8))?
        .named("api")
        .key(Header::new("x-api-key"))
        .try_store(store)?;
    Ok(Router::new().route("/", get(async || "hello")).layer(limit))
}
// Copy to here.

#[cfg(test)]
mod tests {
    use tollgate::testing::{Fault, Faulty};

    use super::*;
    use crate::client;

    #[tokio::test]
    async fn a_node_decides_by_its_half_until_the_store_is_back() {
        let store = Faulty::new(Local::new());
        let app = app(store.clone().boxed(), 2).unwrap();
        let admitted = async |key| client::admitted(&app, || client::get("/", key)).await;
        assert_eq!(admitted("alice").await, 8);
        store.faults().always(Fault::Unavailable);
        assert_eq!(admitted("bob").await, 4);
        assert_eq!(admitted("carol").await, 4);
        // Without the circuit breaker's pause.
        let other = super::app(store.clone().boxed(), 2).unwrap();
        store.faults().none();
        let admitted = client::admitted(&other, || client::get("/", "bob")).await;
        assert_eq!(admitted, 8);
    }

    #[tokio::test]
    async fn a_program_starts_without_a_server() {
        // Nobody listens where a listener was.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let shared = shared(&format!("redis://{address}")).await.unwrap();
        let app = app(shared, 2).unwrap();
        let admitted = client::admitted(&app, || client::get("/", "alice")).await;
        assert_eq!(admitted, 4);
    }
}
