//! API keys, users or tenants in a database.

// Copy from here.
use axum::{
    Router,
    extract::{Request, State},
    http::StatusCode,
    middleware,
    response::Response,
    routing::get,
};
use tollgate::{
    key::{Extension, Key},
    prelude::*,
};

async fn authenticate(
    State(database): State<Database>,
    mut request: Request,
    next: middleware::Next,
) -> Result<Response, StatusCode> {
    let api_key = request.headers().get("x-api-key");
    let api_key = api_key.and_then(|value| value.to_str().ok());
    let api_key = api_key.ok_or(StatusCode::UNAUTHORIZED)?;
    let tenant = database.find_tenant(api_key).await;
    let tenant = tenant.ok_or(StatusCode::UNAUTHORIZED)?;
    request.extensions_mut().insert(tenant);
    Ok(next.run(request).await)
}

fn app(database: Database) -> Router {
    let per_tenant = RateLimitLayer::new(TokenBucket::per_hour(3))
        .named("tenant")
        .key(Extension::new(|tenant: &Tenant| Key::from(tenant.id)));
    let per_address = RateLimitLayer::new(TokenBucket::per_hour(100))
        .named("address")
        .key(PeerIp::new());
    Router::new()
        .route("/", get(async || "hello"))
        // From the innermost to the outermost.
        .layer(per_tenant)
        .layer(middleware::from_fn_with_state(database, authenticate))
        .layer(per_address)
}
// Copy to here.

#[derive(Clone)]
struct Tenant {
    id: u64,
}

/// The tenants by their API keys.
#[derive(Clone)]
struct Database(std::sync::Arc<std::collections::HashMap<&'static str, Tenant>>);

impl Database {
    async fn find_tenant(&self, api_key: &str) -> Option<Tenant> {
        self.0.get(api_key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, sync::Arc};

    use axum::extract::connect_info::MockConnectInfo;

    use super::*;
    use crate::client;

    #[tokio::test]
    async fn keys_of_one_tenant_share_a_budget_and_an_address_bounds_the_look_ups() {
        let tenants = [("laptop", 7), ("phone", 7), ("other", 8)];
        let tenants = tenants.map(|(api_key, id)| (api_key, Tenant { id }));
        let peer = SocketAddr::from(([192, 0, 2, 1], 4711));
        let app = app(Database(Arc::new(tenants.into()))).layer(MockConnectInfo(peer));
        let status = async |api_key| client::status(&app, client::get("/", api_key)).await;
        for (api_key, expected) in [
            ("laptop", 200),
            ("phone", 200),
            ("laptop", 200),
            ("phone", 429),
        ] {
            assert_eq!(status(api_key).await, expected);
        }
        assert_eq!(status("other").await, 200);
        assert_eq!(status("guessed").await, 401);
        for _ in 0..94 {
            assert_eq!(status("guessed").await, 401);
        }
        assert_eq!(
            status("other").await,
            429,
            "a hundred requests from one address"
        );
    }
}
