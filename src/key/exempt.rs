//! Requests that are not limited: the extractor that exempts them, and the predicates that select
//! them.

use std::{collections::BTreeSet, fmt};

use http::{
    Method, Request,
    header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN},
};

use super::{Extracted, KeyExtractor, MissingKey};

/// Selects requests, for [`exempt_if`](super::KeyExtractorExt::exempt_if).
///
/// Implemented for functions `Fn(&Req) -> bool`.
///
/// # Examples
///
/// A predicate with a setting:
///
/// ```
/// use http::Request;
/// use tollgate::key::{Extracted, Global, KeyExtractor, KeyExtractorExt, Predicate};
///
/// /// Matches requests to paths below a prefix.
/// struct Below(&'static str);
///
/// impl<B> Predicate<Request<B>> for Below {
///     fn matches(&self, req: &Request<B>) -> bool {
///         req.uri().path().starts_with(self.0)
///     }
/// }
///
/// let key = Global.exempt_if(Below("/internal/"));
/// let request = Request::builder().uri("/internal/metrics").body(()).unwrap();
/// assert_eq!(key.extract(&request), Ok(Extracted::Exempt));
/// ```
#[doc(alias("whitelist", "allowlist", "skip", "exempt"))]
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not select which `{Req}` to exempt",
    note = "expected `cors_preflight`, `paths([…])`, or a closure `|request: &{Req}| …` with its \
            argument's type written out that returns a `bool`"
)]
pub trait Predicate<Req: ?Sized> {
    /// Returns `true` if the predicate selects `req`.
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

/// Returns `true` for a CORS preflight, by which a browser checks if it may send the real request.
///
/// A preflight is `OPTIONS` with `Origin` and `Access-Control-Request-Method` (Fetch standard
/// §3.3). It carries no credentials, so a limit by API key refuses all of them. Any client can send
/// one: exempt them if an outer layer, or the service itself, answers them cheaply.
///
/// # Examples
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
/// let key = Header::new("x-api-key").exempt_if(cors_preflight);
/// assert_eq!(key.extract(&preflight), Ok(Extracted::Exempt));
/// ```
#[doc(alias = "OPTIONS")]
pub fn cors_preflight<B>(req: &Request<B>) -> bool {
    req.method() == Method::OPTIONS
        && req.headers().contains_key(ORIGIN)
        && req.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Returns a predicate that selects requests to these paths.
///
/// The path of the URI must be equal to one of them; the query is ignored. Neither `/health/` nor
/// `/health/x` matches `/health`. In a nested axum router, the path is without the prefix of the
/// nesting.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::key::{Extracted, Global, KeyExtractor, KeyExtractorExt, paths};
///
/// let key = Global.exempt_if(paths(["/health", "/ready"]));
/// let request = Request::builder().uri("/health?full").body(()).unwrap();
/// assert_eq!(key.extract(&request), Ok(Extracted::Exempt));
/// ```
#[doc(alias("whitelist", "allowlist", "skip"))]
pub fn paths<I>(paths: I) -> Paths
where
    I: IntoIterator<Item: Into<String>>,
{
    Paths {
        paths: paths.into_iter().map(Into::into).collect(),
    }
}

/// A predicate that selects requests to a list of paths: made by [`paths`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Paths {
    paths: BTreeSet<String>,
}

impl<B> Predicate<Request<B>> for Paths {
    fn matches(&self, req: &Request<B>) -> bool {
        self.paths.contains(req.uri().path())
    }
}

/// An extractor that exempts some requests: made by
/// [`exempt_if`](super::KeyExtractorExt::exempt_if).
#[derive(Clone, Copy)]
pub struct ExemptIf<E, P> {
    inner: E,
    predicate: P,
}

impl<E, P> ExemptIf<E, P> {
    pub(super) fn new(inner: E, predicate: P) -> Self {
        Self { inner, predicate }
    }
}

impl<Req, E, P> KeyExtractor<Req> for ExemptIf<E, P>
where
    Req: ?Sized,
    E: KeyExtractor<Req>,
    P: Predicate<Req>,
{
    fn extract(&self, req: &Req) -> Result<Extracted, MissingKey> {
        if self.predicate.matches(req) {
            return Ok(Extracted::Exempt);
        }
        self.inner.extract(req)
    }
}

impl<E: fmt::Debug, P> fmt::Debug for ExemptIf<E, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExemptIf")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
