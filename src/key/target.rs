//! Keys from the target of a request: its host, its method, its path, its route.

use std::borrow::Cow;

use http::{Request, header::HOST, uri::Authority};

use super::{Extracted, Key, KeyExtractor, MissingKey, header};

/// Limits by the host that a request is for, such as a tenant's domain.
///
/// The host is in the target (HTTP/2, and HTTP/1.1 through a proxy) or in the header `Host`. A
/// request with two `Host` lines, or with a target and a `Host` that differ, counts as one without
/// a host, because the service might read the other one. Letters are lower-cased; a port and a dot
/// at the end are left out.
///
/// A client may send any host. Refuse those that you do not serve in an outer layer, or give them a
/// key of their own, as below.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::key::{Extracted, Host, Key, KeyExtractor, MissingKey};
///
/// let by_tenant = |request: &Request<()>| {
///     let host = Host::of(request).ok_or(MissingKey::new("there must be one host"))?;
///     Ok::<_, MissingKey>(match &*host {
///         "acme.example" | "umbrella.example" => Key::from(&*host),
///         _ => Key::shared("unknown"),
///     })
/// };
/// let request = Request::builder().header("host", "Acme.example:8080").body(()).unwrap();
/// assert_eq!(by_tenant.extract(&request), Ok(Extracted::Key(Key::from("acme.example"))));
/// assert_eq!(Host.extract(&request), Ok(Extracted::Key(Key::from("acme.example"))));
/// ```
#[doc(alias("tenant", "domain", "virtual host"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Host;

impl Host {
    /// Returns the host that a request is for; `None` if it has none, or two.
    pub fn of<B>(req: &Request<B>) -> Option<Cow<'_, str>> {
        let target = req.uri().host().map(normalized);
        if !req.headers().contains_key(HOST) {
            return target.filter(|host| !host.is_empty());
        }
        let text = header::only_value(req.headers(), &HOST)?;
        let host = normalized(without_port(text)?);
        let is_same = target.is_none_or(|target| target == host);
        (is_same && !host.is_empty()).then_some(host)
    }
}

impl<B> KeyExtractor<Request<B>> for Host {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        match Self::of(req) {
            Some(host) => Ok(Extracted::Key(Key::from(&*host))),
            None => Err(MissingKey::new(
                "there must be one host: in the target, in a header `host`, or the same in both",
            )),
        }
    }
}

/// Returns the value of a header `Host` without its port; `None` if it is not valid, or has user
/// information (RFC 9110 §7.2).
fn without_port(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?;
    let is_authority = Authority::try_from(text).is_ok() && !text.contains('@');
    // A colon in brackets belongs to an IPv6 address.
    let end = text
        .rfind(':')
        .filter(|colon| !text[*colon..].contains(']'));
    is_authority.then(|| &text[..end.unwrap_or(text.len())])
}

/// Normalizes a host: names are not case-sensitive (RFC 4343), and a dot at the end does not make
/// another host.
fn normalized(host: &str) -> Cow<'_, str> {
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return host.to_ascii_lowercase().into();
    }
    host.into()
}

/// Limits by the method of the request.
///
/// Most useful as a part of a joined key. HEAD has a budget of its own beside GET, although many
/// routers answer it by the handler of GET.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::key::{Extracted, Header, Key, KeyExtractor, Method};
///
/// let key = (Header::new("x-api-key"), Method);
/// let request = Request::builder()
///     .method("PUT")
///     .header("x-api-key", "s3cret")
///     .body(())
///     .unwrap();
/// let joined = Key::join([Key::bytes(b"s3cret"), Key::from("PUT")]);
/// assert_eq!(key.extract(&request), Ok(Extracted::Key(joined)));
/// ```
///
/// A key with one budget for both:
///
/// ```
/// use http::{Method, Request};
/// use tollgate::{key::from_fn, prelude::*};
///
/// fn by_method<B>(request: &Request<B>) -> Key {
///     match *request.method() {
///         Method::HEAD => Key::from("GET"),
///         ref method => Key::from(method.as_str()),
///     }
/// }
/// # use tollgate::key::KeyExtractor;
/// # let key = |method: &str| from_fn(by_method::<()>).extract(&Request::builder().method(method).body(()).unwrap());
/// # assert_eq!(key("HEAD"), key("GET"));
/// # assert_ne!(key("POST"), key("GET"));
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10))
///     .key((PeerIp::new(), from_fn(by_method::<String>)));
/// # let _ = layer;
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
/// axum matches the route before it calls a layer added with `Router::layer`. Requests without a
/// route (a fallback, or a layer around the whole router) share the key `Key::shared("unmatched")`,
/// so a client gains nothing by inventing paths.
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
            None => Key::shared("unmatched"),
        }))
    }
}
