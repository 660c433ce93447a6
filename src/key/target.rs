//! Keys made of what a request asks for.

use http::Request;

use super::{Extracted, KeyExtractor, MissingKey};

/// The request's method.
///
/// Mostly a part of a joined key, as in `(PeerIp::new(), Method)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Method;

impl<B> KeyExtractor<Request<B>> for Method {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        Ok(Extracted::Key(req.method().as_str().into()))
    }
}

/// The path of the URI as it was sent, without the query.
///
/// A client can spell one path in many ways (`/a`, `/a/`, `/%61`) and invent others, each
/// with a budget of its own. To limit a route, use
#[cfg_attr(feature = "axum", doc = "[`MatchedPath`].")]
#[cfg_attr(not(feature = "axum"), doc = "`MatchedPath` (feature `axum`).")]
///
/// ```
/// use http::Request;
/// use tollgate::key::{Extracted, Key, KeyExtractor, Path};
///
/// let request = Request::builder().uri("/search?q=rust").body(()).unwrap();
/// assert_eq!(Path.extract(&request), Ok(Extracted::Key(Key::from("/search"))));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Path;

impl<B> KeyExtractor<Request<B>> for Path {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        Ok(Extracted::Key(req.uri().path().into()))
    }
}

/// The route that matched, such as `/users/{id}`, from axum's extension of that name.
///
/// axum matches before it calls a layer added with `Router::layer`. Requests without a
/// route (a fallback, a layer around the whole router) share the key
/// `Key::shared("unmatched")`, so that made-up paths win nothing.
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
#[derive(Clone, Copy, Debug, Default)]
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
