//! One limit for a fleet, without a round trip for each request.

// Copy from here.
use std::time::Duration;

use axum::{Router, routing::get};
use tollgate::{
    prelude::*,
    store::{BoxStore, CircuitBreakerConfig, LeaseConfig, StoreError},
};

/// A node. `shared` is the store of all nodes: `Redis::connect_lazy(url)?.boxed()`, or
/// `Memcached`.
fn node(
    shared: BoxStore<TokenBucket, StoreError>,
    rule: TokenBucket,
) -> Result<Router, tollgate::Error> {
    let store = shared
        .timeout(Duration::from_millis(100))
        .circuit_breaker(CircuitBreakerConfig::new())
        .leased(LeaseConfig::new().duration(Duration::from_millis(100)))
        .remember_refusals()
        .fail_closed();
    let limit = RateLimitLayer::try_new(rule)?
        .named("api")
        .key(Header::new("x-api-key"))
        // An error if the burst is too small for the lease duration.
        .try_store(store)?;
    Ok(Router::new().route("/", get(async || "hello")).layer(limit))
}
// Copy to here.

#[cfg(test)]
mod tests {
    use tollgate::testing::Faulty;

    use super::*;
    use crate::client;

    #[tokio::test]
    async fn nodes_together_never_exceed_the_limit() {
        let rule = TokenBucket::per_day(1000);
        let shared = Faulty::new(Local::new());
        let nodes = [shared.clone().boxed(), shared.boxed()];
        let nodes = nodes.map(|shared| node(shared, rule).unwrap());
        let mut admitted = 0;
        for request in 0..3000 {
            let status = client::status(&nodes[request % 2], client::get("/", "alice")).await;
            admitted += usize::from(status == 200);
        }
        // Fewer if units expire unspent; those are refilled later.
        assert!(admitted <= 1000);
        assert!(admitted >= 100, "{admitted}");
    }

    #[test]
    fn a_burst_must_pay_for_what_is_refilled_during_the_hold() {
        // A hundred units.
        let small = TokenBucket::per_second(1000).burst(50);
        assert!(node(Faulty::new(Local::new()).boxed(), small).is_err());
    }
}
