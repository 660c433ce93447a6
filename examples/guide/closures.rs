//! Closures that the compiler accepts.

// Copy from here.
use axum::{Router, extract::Request, response::Response, routing::get};
use tollgate::{BoxLayer, prelude::*};

/// A layer in a struct: its type names no closure.
struct Api {
    limit: BoxLayer<Request, TokenBucket>,
}

fn api() -> Result<Api, tollgate::Error> {
    // The argument of a closure has a type, and the key owns its text.
    let limit = Limit::try_new(TokenBucket::per_hour(3))?
        .key(|request: &Request| {
            let user = request.headers().get("x-user")?.to_str().ok()?;
            Some(Key::from(user))
        })
        // `None` is the limit's own rule.
        .rule(|request: &Request| {
            let is_search = request.uri().path() == "/search";
            is_search.then(|| TokenBucket::per_hour(6))
        })
        .cost(|request: &Request| {
            let is_export = request.uri().query() == Some("export");
            Cost::new(if is_export { 2 } else { 1 }).unwrap_or(Cost::ONE)
        })
        .charge_if(|response: &Response| !response.status().is_server_error());
    let limit = RateLimitLayer::list(vec![limit.boxed()])?;
    Ok(Api {
        limit: limit.store(Local::new().boxed()),
    })
}

fn app(api: &Api) -> Router {
    let handler = get(async || "hello");
    let routes = Router::new().route("/", handler.clone());
    routes.route("/search", handler).layer(api.limit.clone())
}
// Copy to here.

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;
    use crate::client;

    #[tokio::test]
    async fn each_closure_is_called() {
        let app = app(&api().unwrap());
        let admitted = async |user: &str, path: &str| {
            let request = || {
                let request = Request::get(path).header("x-user", user);
                request.body(Body::empty()).unwrap()
            };
            client::admitted(&app, request).await
        };
        assert_eq!(admitted("alice", "/").await, 3);
        assert_eq!(admitted("bob", "/search").await, 6);
        assert_eq!(admitted("carol", "/search?export").await, 3);
        let nobody = Request::get("/").body(Body::empty()).unwrap();
        assert_eq!(client::status(&app, nobody).await, 400);
    }
}
