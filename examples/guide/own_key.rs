//! A key of your own.

// Copy from here.
use axum::{
    Router,
    http::{Request, StatusCode},
    routing::get,
};
use tollgate::{
    key::{Extracted, KeyExtractor, MissingKey},
    prelude::*,
};

/// Extracts the tenant of `/tenants/TENANT/…` as the key. A name has no escapes: `%61cme`
/// would be another key, and the same tenant.
#[derive(Clone, Copy)]
struct ByTenant;

impl<B> KeyExtractor<Request<B>> for ByTenant {
    fn extract(&self, request: &Request<B>) -> Result<Extracted, MissingKey> {
        let tenant = request.uri().path().strip_prefix("/tenants/");
        let tenant = tenant.and_then(|rest| rest.split('/').next());
        match tenant {
            Some(tenant) if !tenant.is_empty() && !tenant.contains('%') => {
                Ok(Key::from(tenant).into())
            }
            _ => Err(MissingKey::new("the path names no tenant, or by an escape")),
        }
    }
}

// Enables `.or(…)`, `.exempt_if(…)` and the other combinators.
impl KeyExtractorExt for ByTenant {}

fn app() -> Router {
    let limit = RateLimitLayer::new(TokenBucket::per_hour(2)).key(
        ByTenant
            .exempt_paths(["/health"])
            .or_refuse(StatusCode::NOT_FOUND),
    );
    Router::new()
        .route("/health", get(async || "well"))
        .route("/tenants/{tenant}/hello", get(async || "hello"))
        .layer(limit)
}
// Copy to here.

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;

    #[tokio::test]
    async fn each_tenant_has_a_budget() {
        let app = app();
        let admitted = async |path| client::admitted(&app, || client::get(path, "")).await;
        assert_eq!(admitted("/tenants/acme/hello").await, 2);
        assert_eq!(admitted("/tenants/initech/hello").await, 2);
        assert_eq!(admitted("/health").await, 10);
        assert_eq!(client::status(&app, client::get("/other", "")).await, 404);
        for path in [
            "/tenants//hello",
            "/tenants/%61cme/hello",
            "/tenants/acm%65/hello",
        ] {
            assert_eq!(client::admitted(&app, || client::get(path, "")).await, 0);
            assert_eq!(client::status(&app, client::get(path, "")).await, 404);
        }
    }
}
