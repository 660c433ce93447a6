//! Keys from the target of a request: its method, its path, its route.

use http::Request;

use super::{Extracted, KeyExtractor, MissingKey};

/// Limits by the method of the request.
///
/// Most useful as a part of a joined key. HEAD has a budget of its own beside GET; the [guide](crate::guide#where-the-layer-stands) has a
/// key with one for both.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::key::{Extracted, Header, Key, KeyExtractor, Method};
///
/// let key = (Header::new("x-api-key"), Method);
/// let request = Request::builder().method("PUT").header("x-api-key", "s3cret").body(()).unwrap();
/// let joined = Key::join([Key::bytes(b"s3cret"), Key::from("PUT")]);
/// assert_eq!(key.extract(&request), Ok(Extracted::Key(joined)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Method;

impl<B> KeyExtractor<Request<B>> for Method {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        Ok(Extracted::Key(req.method().as_str().into()))
    }
}

/// Limits by the path of the URI, as it was sent and without the query.
///
/// A client can write one path in several ways (`/a`, `/a/`, `/%61`) and invent others, each
/// with its own budget. To limit a route, use
#[cfg_attr(feature = "axum", doc = "[`MatchedPath`].")]
#[cfg_attr(not(feature = "axum"), doc = "`MatchedPath` (feature `axum`).")]
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::key::{Extracted, Key, KeyExtractor, Path};
///
/// let request = Request::builder().uri("/search?q=rust").body(()).unwrap();
/// assert_eq!(Path.extract(&request), Ok(Extracted::Key(Key::from("/search"))));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Path;

impl<B> KeyExtractor<Request<B>> for Path {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        Ok(Extracted::Key(req.uri().path().into()))
    }
}

/// Limits by the route that matched, such as `/users/{id}`, from axum's extension `MatchedPath`.
///
/// axum matches the route before it calls a layer added with `Router::layer`. Requests without a route (a fallback, or a
/// layer around the whole router) share the key `Key::shared("unmatched")`, so a client gains nothing by inventing paths.
///
/// # Examples
///
/// ```
/// use axum::{Router, body::Body, extract::Request, routing::get};
/// use tollgate::{RateLimitLayer, TokenBucket, key::MatchedPath};
/// use tower::ServiceExt;
///
/// let app: Router = Router::new()
///     .route("/users/{id}", get(|| async { "user" }))
///     .layer(RateLimitLayer::new(TokenBucket::per_hour(1)).key(MatchedPath));
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// for (path, status) in [("/users/1", 200), ("/users/2", 429)] {
///     let request = Request::get(path).body(Body::empty()).unwrap();
///     assert_eq!(app.clone().oneshot(request).await.unwrap().status(), status);
/// }
/// # });
/// ```
#[doc(alias("route", "endpoint"))]
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MatchedPath;

#[cfg(feature = "axum")]
impl<B> KeyExtractor<Request<B>> for MatchedPath {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        let matched = req.extensions().get::<axum::extract::MatchedPath>();
        Ok(Extracted::Key(match matched {
            Some(path) => path.as_str().into(),
            None => super::Key::shared("unmatched"),
        }))
    }
}
