//! Introduce a limit without surprises.

// Copy from here.
use axum::{Router, routing::get};
use tollgate::prelude::*;

/// `percent` comes from the configuration: 0, then 5, 25 and 100.
fn app(percent: u8) -> Result<Router, tollgate::Error> {
    let limit = Limit::new("token-bucket 2/1m".parse::<AnyRule>()?)
        .named("api")
        .key(Header::new("x-api-key"))
        .try_enforce_for(percent)?;
    let limit = RateLimitLayer::from(limit);
    let report = {
        let limit = limit.clone();
        async move || {
            let report = limit.dry_run_report("api").unwrap_or_default();
            let (refused, clients) = (report.refused, report.refused_keys);
            let all = report.admitted + refused;
            format!("would refuse {refused} of {all} requests, of {clients} clients")
        }
    };
    Ok(Router::new()
        .route("/", get(async || "hello"))
        .layer(limit)
        // The last route is not behind the limit. Do not publish it.
        .route("/limits", get(report)))
}
// Copy to here.

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;

    #[tokio::test]
    async fn a_limit_at_zero_percent_reports_and_refuses_nobody() {
        let app = app(0).unwrap();
        for (key, requests) in [("alice", 5), ("bob", 2), ("carol", 3)] {
            for _ in 0..requests {
                assert_eq!(client::text(&app, client::get("/", key)).await, "hello");
            }
        }
        let report = client::text(&app, client::get("/limits", "")).await;
        assert_eq!(report, "would refuse 4 of 10 requests, of 2 clients");
    }
}
