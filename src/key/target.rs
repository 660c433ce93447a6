//! Keys from the target of a request, and from its extensions.

use std::{any::type_name, borrow::Cow, fmt, marker::PhantomData};

use http::{Request, header::HOST, uri::Authority};

use super::{Extracted, IntoKey, Key, KeyExtractor, MissingKey, OperatorHelp, header};

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

/// Limits by a value in the request's extensions, which an outer layer inserts.
///
/// Extractors are synchronous. A look-up (of a session, a tenant or a plan) belongs in an outer
/// layer, which can also reject the request.
///
/// A missing value is the server's fault, answered with 500, because the layer that inserts it may
/// have been forgotten.
///
/// Requests without a value, such as those of users who are not logged in, are valid in one of two
/// ways:
///
/// - [`or`](super::KeyExtractorExt::or), [`or_shared`](super::KeyExtractorExt::or_shared),
///   [`or_exempt`](super::KeyExtractorExt::or_exempt) or
///   [`or_refuse`](super::KeyExtractorExt::or_refuse) says that the value may be absent. Then it is
///   never the server's fault, and a layer that was forgotten goes unnoticed.
/// - The outer layer inserts an `Option`. Its `None` is an ordinary missing key. A layer that was
///   forgotten is noticed, unless one of these methods is used as well.
///
/// # Examples
///
/// ```
/// use axum::{
///     Router,
///     extract::Request,
///     middleware::{Next, from_fn},
///     response::Response,
///     routing::get,
/// };
/// use http::StatusCode;
/// use tollgate::{RateLimitLayer, TokenBucket, key::{Extension, Key}};
///
/// #[derive(Clone)]
/// struct User { id: u64 }
///
/// async fn find_user(token: &str) -> Option<User> { // asks a database
///     (token == "s3cret").then_some(User { id: 7 })
/// }
///
/// async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
///     let token = request.headers().get("x-api-key").and_then(|value| value.to_str().ok());
///     let user = find_user(token.unwrap_or_default()).await;
///     request.extensions_mut().insert(user.ok_or(StatusCode::UNAUTHORIZED)?);
///     Ok(next.run(request).await)
/// }
///
/// let by_user = Extension::new(|user: &User| Key::from(user.id));
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(RateLimitLayer::new(TokenBucket::per_hour(1)).key(by_user))
///     .layer(from_fn(authenticate)); // added last: the outermost
/// # use tower::ServiceExt;
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # for (token, status) in [("s3cret", 200), ("s3cret", 429), ("guess", 401)] {
/// #     let request = Request::builder().header("x-api-key", token);
/// #     let request = request.body(axum::body::Body::empty()).unwrap();
/// #     assert_eq!(app.clone().oneshot(request).await.unwrap().status(), status);
/// # }
/// # });
/// ```
#[doc(alias("user", "tenant", "session"))]
pub struct Extension<T, F> {
    read: F,
    help: OperatorHelp,
    value: PhantomData<fn(&T)>,
}

impl<T, F> Extension<T, F> {
    /// Creates an extractor of the key that `read` returns for the extension of type `T`.
    pub fn new<K>(read: F) -> Self
    where
        F: Fn(&T) -> K,
        K: IntoKey,
    {
        let help = format!(
            "no `{}` in the request's extensions: the layer that inserts it must be outside of the \
             limit (in axum: added after it)",
            type_name::<T>()
        );
        Self {
            read,
            help: OperatorHelp::new(help),
            value: PhantomData,
        }
    }
}

impl<B, T, F, K> KeyExtractor<Request<B>> for Extension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> K,
    K: IntoKey,
{
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        match req.extensions().get() {
            Some(value) => (self.read)(value).into_key(),
            None => Err(MissingKey::absent(self.help.clone())),
        }
    }
}

impl_clone!([T, F: Clone] Extension<T, F>, { read, help, value });

impl<T, F> fmt::Debug for Extension<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension({})", type_name::<T>())
    }
}
