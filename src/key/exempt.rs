//! Requests that are not limited.

use std::collections::BTreeSet;

use http::{
    Method, Request,
    header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN},
};

/// Tells requests apart, for [`exempting`](super::KeyExtractorExt::exempting).
///
/// Implemented for functions `Fn(&Req) -> bool`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot tell which `{Req}` to exempt",
    note = "expected `cors_preflight`, `paths([…])`, or a closure `|request: &{Req}| …` with its \
            argument's type written out that returns a `bool`"
)]
pub trait Predicate<Req: ?Sized> {
    /// Whether `req` is one of those that are meant.
    fn matches(&self, req: &Req) -> bool;
}

impl<F, Req> Predicate<Req> for F
where
    Req: ?Sized,
    F: Fn(&Req) -> bool,
{
    fn matches(&self, req: &Req) -> bool {
        self(req)
    }
}

/// Whether a browser asks if it may send the real request (CORS preflight).
///
/// That is `OPTIONS` with `Origin` and `Access-Control-Request-Method` (Fetch standard §3.3).
/// Preflights carry no credentials, so a limit by key would refuse them all.
///
/// Any client can send one. Exempt them where something outside of the service answers
/// them at once.
///
/// ```
/// use http::Request;
/// use tollgate::key::{Extracted, Header, KeyExtractor, KeyExtractorExt, cors_preflight};
///
/// let preflight = Request::builder()
///     .method("OPTIONS")
///     .header("origin", "https://example.com")
///     .header("access-control-request-method", "PUT")
///     .body(())
///     .unwrap();
/// let key = Header::new("x-api-key").exempting(cors_preflight);
/// assert_eq!(key.extract(&preflight), Ok(Extracted::Exempt));
/// ```
pub fn cors_preflight<B>(req: &Request<B>) -> bool {
    req.method() == Method::OPTIONS
        && req.headers().contains_key(ORIGIN)
        && req.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Exempts requests to these paths, exactly as written.
///
/// The URI's path is compared, without the query: neither `/health/` nor `/health/x` is `/health`. In
/// a nested axum router the path is what is left of it there.
///
/// ```
/// use http::Request;
/// use tollgate::key::{Extracted, Global, KeyExtractor, KeyExtractorExt, paths};
///
/// let key = Global.exempting(paths(["/health", "/ready"]));
/// let request = Request::builder().uri("/health?full").body(()).unwrap();
/// assert_eq!(key.extract(&request), Ok(Extracted::Exempt));
/// ```
#[doc(alias("whitelist", "allowlist", "skip", "health check"))]
pub fn paths<I>(paths: I) -> Paths
where
    I: IntoIterator<Item: Into<String>>,
{
    Paths {
        paths: paths.into_iter().map(Into::into).collect(),
    }
}

/// A list of paths, made by [`paths`].
#[derive(Clone, Debug)]
pub struct Paths {
    paths: BTreeSet<String>,
}

impl<B> Predicate<Request<B>> for Paths {
    fn matches(&self, req: &Request<B>) -> bool {
        self.paths.contains(req.uri().path())
    }
}
