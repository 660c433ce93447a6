//! One limit for several servers, in Redis.

// Copy from here.
use std::time::Duration;

use axum::{Router, routing::get};
use tollgate::{
    prelude::*,
    store::{BoxStore, CircuitBreakerConfig, StoreError},
};

/// An error if there is no server at this URL, such as `redis://127.0.0.1`.
async fn shared(url: &str) -> Result<BoxStore<TokenBucket, StoreError>, StoreError> {
    let redis = Redis::connect(url).await?;
    Ok(redis.boxed())
}

/// One of the servers. `shared` is the store of all.
fn app(shared: BoxStore<TokenBucket, StoreError>) -> Router {
    let store = shared
        .timeout(Duration::from_millis(100))
        .circuit_breaker(CircuitBreakerConfig::new())
        .remember_refusals()
        .fail_closed();
    let limit = RateLimitLayer::new(TokenBucket::per_hour(3))
        // The name and the key select the state in the store.
        .named("api")
        .key(Header::new("x-api-key"))
        .store(store);
    Router::new().route("/", get(async || "hello")).layer(limit)
}
// Copy to here.

#[cfg(test)]
mod tests {
    use tollgate::testing::{Fault, Faulty};

    use super::*;
    use crate::client;

    #[tokio::test]
    async fn servers_share_the_budget_of_a_client() {
        let store = Faulty::new(Local::new());
        let apps = [app(store.clone().boxed()), app(store.clone().boxed())];
        let send = async |server: usize| {
            let request = client::get("/", "alice");
            client::status(&apps[server], request).await
        };
        for (server, expected) in [(0, 200), (1, 200), (0, 200), (1, 429), (0, 429)] {
            assert_eq!(send(server).await, expected);
        }
        store.faults().always(Fault::Unavailable);
        let other = client::get("/", "bob");
        assert_eq!(client::status(&apps[0], other).await, 503);
    }

    #[tokio::test]
    async fn a_program_without_a_server_does_not_start() {
        // Nobody listens where a listener was.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert!(shared(&format!("redis://{address}")).await.is_err());
    }
}
