//! Change the rule of a limit without surprises.

// Copy from here.
use axum::{Router, routing::get};
use tollgate::prelude::*;

fn app() -> Result<Router, tollgate::Error> {
    let limit = RateLimitLayer::new("token-bucket 1/1d burst=3".parse::<AnyRule>()?)
        .named("api")
        .key(Header::new("x-api-key"))
        .candidate("api-next", "token-bucket 1/1d burst=5".parse()?);
    let report = {
        let limit = limit.clone();
        async move || {
            let report = limit.dry_run_report("api-next").unwrap_or_default();
            let (admitted, refused) = (report.both_admitted, report.both_refused);
            // Requests on which the rules differ.
            let (more, fewer) = (report.admitted_alone, report.refused_alone);
            format!("both: +{admitted} -{refused}, the new rule alone: +{more} -{fewer}")
        }
    };
    Ok(Router::new()
        .route("/", get(async || "hello"))
        .layer(limit)
        .route("/limits", get(report)))
}
// Copy to here.

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;

    #[tokio::test]
    async fn the_report_compares_both_rules_on_the_same_requests() {
        let app = app().unwrap();
        assert_eq!(
            client::admitted(&app, || client::get("/", "alice")).await,
            3
        );
        let report = client::text(&app, client::get("/limits", "")).await;
        assert_eq!(report, "both: +3 -5, the new rule alone: +2 -0");
    }
}
