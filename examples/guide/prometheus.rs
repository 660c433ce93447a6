//! See what is refused.

// Copy from here.
use std::time::Duration;

use axum::{Router, routing::get};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder};
use tollgate::{
    observe::{Metrics, Publish},
    prelude::*,
};

fn app() -> Result<Router, BuildError> {
    // The recorder first: metrics that are registered before it are lost.
    let prometheus = PrometheusBuilder::new().install_recorder()?;
    // Adds up the samples of histograms, which otherwise accumulate until a scrape.
    let upkeep = prometheus.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });
    Metrics::describe();

    let store = Local::new();
    let layer = RateLimitLayer::new(TokenBucket::per_hour(2))
        .named("client")
        .key(Header::new("x-api-key"))
        .store(store.clone())
        .observe(Metrics::new());
    let metrics = {
        let layer = layer.clone();
        async move || {
            // The counts of the store and the layer up to now.
            store.publish("limits");
            layer.publish("api");
            prometheus.render()
        }
    };
    Ok(Router::new()
        .route("/", get(async || "hello"))
        .layer(layer)
        // The last route is not behind the limit.
        .route("/metrics", get(metrics)))
}
// Copy to here.

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;

    #[tokio::test]
    async fn a_scrape_has_the_refusals_and_the_keys() {
        let app = app().unwrap();
        for _ in 0..5 {
            client::status(&app, client::get("/", "alice")).await;
        }
        let scraped = client::text(&app, client::get("/metrics", "alice")).await;
        let refused = "tollgate_requests_total{policy=\"client\",outcome=\"refused\"} 3";
        assert!(scraped.contains(refused), "{scraped}");
        assert!(
            scraped.contains("tollgate_local_keys{store=\"limits\"} 1"),
            "{scraped}"
        );
    }
}
