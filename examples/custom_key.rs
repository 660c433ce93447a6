//! A custom key, and a rule per tenant, which an outer layer looks up.
//!
//! `cargo run --example custom_key`

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::StatusCode,
    middleware::{self, Next},
    response::Response,
    routing::get,
};
use tollgate::{
    key::{Extracted, KeyExtractor, MissingKey},
    prelude::*,
};
use tower::ServiceExt;

/// Extracts the tenant of `/tenants/TENANT/…` as the key.
#[derive(Clone, Copy)]
struct ByTenant;

impl<B> KeyExtractor<axum::http::Request<B>> for ByTenant {
    fn extract(&self, req: &axum::http::Request<B>) -> Result<Extracted, MissingKey> {
        let tenant = tenant(req.uri().path());
        let tenant = tenant
            .ok_or_else(|| MissingKey::new("the path does not begin with `/tenants/TENANT`"))?;
        Ok(Key::from(tenant).into())
    }
}

// Enables `.or(…)`, `.exempt_if(…)` and the other combinators.
impl KeyExtractorExt for ByTenant {}

fn tenant(path: &str) -> Option<&str> {
    let tenant = path.strip_prefix("/tenants/")?.split('/').next()?;
    (!tenant.is_empty()).then_some(tenant)
}

/// The plan of a tenant. Without a rule of its own, the tenant gets the rule of the layer.
#[derive(Clone)]
struct Plan {
    rule: Option<AnyRule>,
}

/// Stands for a database query that returns a tenant's rule as text.
async fn find_plan(tenant: &str) -> Result<Plan, StatusCode> {
    let rule = match tenant {
        "acme" => Some("token-bucket 5/1m"),
        "initech" => Some("token-bucket 4/s & token-bucket 3/1h"),
        "hobby" => None,
        _ => return Err(StatusCode::NOT_FOUND),
    };
    let rule = rule.map(str::parse).transpose();
    Ok(Plan {
        rule: rule.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?,
    })
}

/// Loads the tenant's plan. Extractors and rules are synchronous, so a layer outside the limit does
/// this.
///
/// It also rejects unknown tenants. Otherwise each made-up name would get a budget.
async fn with_plan(mut req: Request, next: Next) -> Result<Response, StatusCode> {
    if let Some(tenant) = tenant(req.uri().path()) {
        let plan = find_plan(tenant).await?;
        req.extensions_mut().insert(plan);
    }
    Ok(next.run(req).await)
}

fn app() -> Router {
    let limit = RateLimitLayer::new(AnyRule::from(TokenBucket::per_minute(2)))
        .key(ByTenant.exempt_paths(["/health"]))
        // `None` selects the rule of the layer.
        .rule(|req: &Request| req.extensions().get::<Plan>()?.rule.clone());
    Router::new()
        .route("/health", get(|| async { "well" }))
        .route("/tenants/{tenant}/hello", get(|| async { "hello" }))
        .layer(limit)
        // The layer added last is the outermost.
        .layer(middleware::from_fn(with_plan))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = app();
    for path in [
        "/tenants/acme/hello",
        "/tenants/initech/hello",
        "/tenants/hobby/hello",
        "/tenants/nobody/hello",
        "/health",
        "/other",
    ] {
        let mut statuses = Vec::new();
        for _ in 0..6 {
            let response = app
                .clone()
                .oneshot(Request::get(path).body(Body::empty())?)
                .await?;
            statuses.push(response.status().as_u16());
        }
        let admitted = statuses
            .iter()
            .filter(|status| **status == StatusCode::OK)
            .count();
        println!("{path:<24} {statuses:?}  {admitted} admitted");
    }
    Ok(())
}
