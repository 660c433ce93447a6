//! Methods that combine extractors, the extractors that they return, and requests that are exempt.

use std::collections::BTreeSet;

use http::{
    Request, StatusCode,
    header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN},
};

use super::{
    AnyKey, BearerToken, Cookie, Extension, Extracted, Forwarded, ForwardedFor, Global, Header,
    Host, Key, KeyExtractor, Method, MissingKey, Path, PeerIp, extractor::FromFn,
};

/// Methods that combine extractors and exempt requests.
///
/// None of them replaces an error that is [misconfigured](super::MissingKey::misconfigured), such
/// as a peer's address that the server does not pass on: it stays the server's fault.
///
/// An absent [`Extension`](super::Extension) is the server's fault only if nothing says that it may
/// be absent. Each of [`or`](Self::or), [`or_shared`](Self::or_shared),
/// [`or_exempt`](Self::or_exempt) and [`or_refuse`](Self::or_refuse) says so. If there is no key
/// after all, the request is at fault: nothing is logged or counted as misconfigured.
///
/// Closures get these methods through [`from_fn`](super::from_fn), and extractors of your own
/// through `impl KeyExtractorExt for Mine {}`.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::key::{Extension, KeyExtractor, KeyExtractorExt, PeerIp};
///
/// /// Inserted by an outer layer that has checked the user's token.
/// struct User { id: u64 }
///
/// let key = Extension::new(|user: &User| user.id)
///     .or(PeerIp::new())
///     .exempt_cors_preflight()
///     .exempt_paths(["/health"])
///     .exempt_if(|req: &Request<String>| req.body().is_empty());
/// assert!(key.extract(&Request::new("hello".to_owned())).is_err());
/// ```
///
/// # Types
///
/// A combined extractor has no name. Where its type must be written, as in a struct, box it:
///
/// ```
/// use std::sync::Arc;
/// use http::Request;
/// use tollgate::key::{BearerToken, Cookie, KeyExtractor, KeyExtractorExt};
///
/// struct Keys {
///     session: Arc<dyn KeyExtractor<Request<String>> + Send + Sync>,
/// }
///
/// // An outer layer checks both.
/// let session = Arc::new(BearerToken.or(Cookie::new("session")));
/// let keys = Keys { session };
/// # let _ = keys.session;
/// ```
// The trait does not name the request: methods of `KeyExtractorExt<Req>` could only be called once
// `Req` is known, which is where the layer meets its service. It is not implemented for all types
// either, or every type would have these methods wherever the prelude is imported.
pub trait KeyExtractorExt: Sized {
    /// Uses the key of `other` for requests without a key.
    ///
    /// An exemption is not a missing key. If neither finds a key, the error of `other` is returned;
    /// if `other` is an absent [`Extension`](super::Extension), that of the first.
    ///
    /// **Clients choose which key counts, by a request without a key or with an invented one.** An
    /// outer layer must check the first one, or clients invent a key for each request and are never
    /// limited, as under `Header::new("x-api-key").or(PeerIp::new())`. Use an
    /// [`Extension`](super::Extension) that only a layer with a check inserts, or
    /// [two limits](crate::guide::behind_a_proxy#clients-that-invent-keys).
    ///
    /// Equal input from two sources gives equal keys. If only one source is checked, a client can
    /// spend the budget of another by sending that one's id through the other source. Use
    /// [`tagged`](Self::tagged) to keep them apart.
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::key::{Extracted, Header, Key, KeyExtractor, KeyExtractorExt};
    ///
    /// let key = Header::new("x-api-key").or(Header::new("x-session"));
    /// let request = Request::builder().header("x-session", "8f3a").body(()).unwrap();
    /// assert_eq!(key.extract(&request), Ok(Extracted::Key(Key::bytes(b"8f3a"))));
    /// ```
    #[doc(alias = "fallback")]
    fn or<T>(self, other: T) -> Or<Self, T> {
        Or {
            first: self,
            second: other,
        }
    }

    /// Limits all requests without a key together, under a key of this name that no client can
    /// send.
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::key::{Extracted, Header, Key, KeyExtractor, KeyExtractorExt};
    ///
    /// let key = Header::new("x-api-key").or_shared("anonymous");
    /// assert_eq!(key.extract(&Request::new(())), Ok(Extracted::Key(Key::shared("anonymous"))));
    /// ```
    #[doc(alias = "anonymous")]
    fn or_shared(self, name: &str) -> IfMissing<Self> {
        IfMissing {
            inner: self,
            answer: Ok(Extracted::Key(Key::shared(name))),
        }
    }

    /// Exempts requests without a key from the limit.
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::key::{Extracted, Header, KeyExtractor, KeyExtractorExt};
    ///
    /// let key = Header::new("x-crawler").or_exempt();
    /// assert_eq!(key.extract(&Request::new(())), Ok(Extracted::Exempt));
    /// ```
    #[doc(alias("whitelist", "allowlist", "skip", "unlimited"))]
    fn or_exempt(self) -> IfMissing<Self> {
        IfMissing {
            inner: self,
            answer: Ok(Extracted::Exempt),
        }
    }

    /// Refuses requests without a key with this status instead of 400.
    ///
    /// ```
    /// use http::{Request, StatusCode};
    /// use tollgate::key::{Header, KeyExtractor, KeyExtractorExt};
    ///
    /// let key = Header::new("x-api-key").or_refuse(StatusCode::FORBIDDEN);
    /// assert_eq!(key.extract(&Request::new(())).unwrap_err().status(), StatusCode::FORBIDDEN);
    /// ```
    #[doc(alias = "reject")]
    fn or_refuse(self, status: StatusCode) -> IfMissing<Self> {
        IfMissing {
            inner: self,
            answer: Err(status),
        }
    }

    /// Exempts the requests that `predicate` selects from the limit, with or without a key.
    ///
    /// The predicate is a function or closure `Fn(&Req) -> bool`.
    ///
    /// ```
    /// use http::{Method, Request};
    /// use tollgate::key::{Extracted, Global, KeyExtractor, KeyExtractorExt};
    ///
    /// let writes = Global.exempt_if(|req: &Request<()>| req.method() == Method::GET);
    /// assert_eq!(writes.extract(&Request::new(())), Ok(Extracted::Exempt));
    /// ```
    #[doc(alias("whitelist", "allowlist", "skip", "exempt", "unlimited", "bypass"))]
    fn exempt_if<P>(self, predicate: P) -> ExemptIf<Self, P> {
        ExemptIf {
            inner: self,
            predicate,
        }
    }

    /// Exempts requests to these paths from the limit.
    ///
    /// The path of the URI must be equal to one of them; the query is ignored. Neither `/health/`
    /// nor `/health/x` is `/health`. In a nested axum router, the path is without the prefix of the
    /// nesting.
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::key::{Extracted, Global, KeyExtractor, KeyExtractorExt};
    ///
    /// let key = Global.exempt_paths(["/health", "/ready"]);
    /// let request = Request::builder().uri("/health?full").body(()).unwrap();
    /// assert_eq!(key.extract(&request), Ok(Extracted::Exempt));
    /// ```
    #[doc(alias("whitelist", "allowlist", "skip"))]
    fn exempt_paths<I>(self, paths: I) -> ExemptIf<Self, Paths>
    where
        I: IntoIterator<Item: Into<String>>,
    {
        let paths = paths.into_iter().map(Into::into).collect();
        ExemptIf {
            inner: self,
            predicate: Paths { paths },
        }
    }

    /// Exempts CORS preflights from the limit, by which browsers check if they may send the real
    /// request.
    ///
    /// A preflight is `OPTIONS` with `Origin` and `Access-Control-Request-Method` (Fetch standard
    /// §3.3). It carries no credentials, so a limit by API key refuses all of them. Any client can
    /// send one: exempt them if an outer layer, or the service itself, answers them cheaply.
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::key::{Extracted, Header, KeyExtractor, KeyExtractorExt};
    ///
    /// let preflight = Request::builder()
    ///     .method("OPTIONS")
    ///     .header("origin", "https://example.com")
    ///     .header("access-control-request-method", "PUT")
    ///     .body(())
    ///     .unwrap();
    /// let key = Header::new("x-api-key").exempt_cors_preflight();
    /// assert_eq!(key.extract(&preflight), Ok(Extracted::Exempt));
    /// ```
    #[doc(alias = "OPTIONS")]
    fn exempt_cors_preflight(self) -> ExemptIf<Self, CorsPreflight> {
        ExemptIf {
            inner: self,
            predicate: CorsPreflight,
        }
    }

    /// Allows the keys to be printed and stored in readable form, as [`Key::labelled`] does.
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::key::{KeyExtractor, KeyExtractorExt, Path};
    ///
    /// let request = Request::builder().uri("/search").body(()).unwrap();
    /// let key = Path.labelled().extract(&request);
    /// assert_eq!(format!("{key:?}"), "Ok(Key(Key(text /search)))");
    /// ```
    fn labelled(self) -> Renamed<Self> {
        Renamed {
            inner: self,
            tag: None,
        }
    }

    /// Puts a name in front of the keys, so that they never equal keys of another source.
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::key::{Header, KeyExtractor, KeyExtractorExt};
    ///
    /// let request = Request::builder().header("x-id", "7").body(()).unwrap();
    /// let (user, team) = (Header::new("x-id").tagged("user"), Header::new("x-id").tagged("team"));
    /// assert_ne!(user.extract(&request), team.extract(&request));
    /// ```
    #[doc(alias("prefix", "namespace"))]
    fn tagged(self, name: &str) -> Renamed<Self> {
        Renamed {
            inner: self,
            tag: Some(Key::shared(name)),
        }
    }
}

impl KeyExtractorExt for AnyKey {}
impl KeyExtractorExt for BearerToken {}
impl KeyExtractorExt for Cookie {}
impl KeyExtractorExt for Forwarded {}
impl KeyExtractorExt for ForwardedFor {}
impl KeyExtractorExt for Global {}
impl KeyExtractorExt for Header {}
impl KeyExtractorExt for Host {}
#[cfg(feature = "axum")]
impl KeyExtractorExt for super::MatchedPath {}
impl KeyExtractorExt for Method {}
impl KeyExtractorExt for Path {}
impl KeyExtractorExt for PeerIp {}

impl<T, F> KeyExtractorExt for Extension<T, F> {}
impl<F> KeyExtractorExt for FromFn<F> {}

impl<A, B> KeyExtractorExt for Or<A, B> {}
impl<E> KeyExtractorExt for IfMissing<E> {}
impl<E, P> KeyExtractorExt for ExemptIf<E, P> {}
impl<E> KeyExtractorExt for Renamed<E> {}

/// Replaces the error of a request without a key, unless the server is misconfigured.
#[inline]
pub(super) fn replaced(
    result: Result<Extracted, MissingKey>,
    replace: impl FnOnce(MissingKey) -> Result<Extracted, MissingKey>,
) -> Result<Extracted, MissingKey> {
    match result {
        Err(missing) if missing.may_be_replaced() => replace(missing),
        result => result,
    }
}

/// An extractor with an alternative: made by [`or`](KeyExtractorExt::or).
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<Req, A, B> KeyExtractor<Req> for Or<A, B>
where
    Req: ?Sized,
    A: KeyExtractor<Req>,
    B: KeyExtractor<Req>,
{
    fn extract(&self, req: &Req) -> Result<Extracted, MissingKey> {
        replaced(self.first.extract(req), |first| {
            match self.second.extract(req) {
                Err(second) if second.is_absent() => Err(first.combined()),
                result => result,
            }
        })
    }
}

/// An extractor with an answer for requests without a key: made by
/// [`or_shared`](KeyExtractorExt::or_shared), [`or_exempt`](KeyExtractorExt::or_exempt) and
/// [`or_refuse`](KeyExtractorExt::or_refuse).
#[derive(Clone, Copy, Debug)]
pub struct IfMissing<E> {
    inner: E,
    answer: Result<Extracted, StatusCode>,
}

impl<Req: ?Sized, E: KeyExtractor<Req>> KeyExtractor<Req> for IfMissing<E> {
    fn extract(&self, req: &Req) -> Result<Extracted, MissingKey> {
        replaced(self.inner.extract(req), |missing| {
            let refusal = |status| missing.combined().with_status(status);
            self.answer.map_err(refusal)
        })
    }
}

/// An extractor of keys with a name in front, or of keys that may be printed: made by
/// [`tagged`](KeyExtractorExt::tagged) and [`labelled`](KeyExtractorExt::labelled).
#[derive(Clone, Copy, Debug)]
pub struct Renamed<E> {
    inner: E,
    tag: Option<Key>,
}

impl<Req: ?Sized, E: KeyExtractor<Req>> KeyExtractor<Req> for Renamed<E> {
    fn extract(&self, req: &Req) -> Result<Extracted, MissingKey> {
        Ok(match (self.inner.extract(req)?, self.tag) {
            (Extracted::Key(key), Some(tag)) => Extracted::Key(Key::join([tag, key])),
            (Extracted::Key(key), None) => Extracted::Key(key.labelled()),
            (Extracted::Exempt, _) => Extracted::Exempt,
        })
    }
}

/// Selects requests, for [`exempt_if`](KeyExtractorExt::exempt_if): a trait and not the bound
/// `Fn(&Req) -> bool`, so that the compiler says what it expects.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not select which `{Req}` to exempt",
    note = "expected a closure `|request: &{Req}| …` with its argument's type written out that \
            returns a `bool`"
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

/// Selects CORS preflights.
#[derive(Clone, Copy, Debug)]
pub struct CorsPreflight;

impl<B> Predicate<Request<B>> for CorsPreflight {
    fn matches(&self, req: &Request<B>) -> bool {
        req.method() == http::Method::OPTIONS
            && req.headers().contains_key(ORIGIN)
            && req.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }
}

/// Selects requests to a list of paths.
#[derive(Clone, Debug)]
pub struct Paths {
    paths: BTreeSet<String>,
}

impl<B> Predicate<Request<B>> for Paths {
    fn matches(&self, req: &Request<B>) -> bool {
        self.paths.contains(req.uri().path())
    }
}

/// An extractor that exempts some requests: made by [`exempt_if`](KeyExtractorExt::exempt_if) and
/// its like.
#[derive(Clone, Copy)]
pub struct ExemptIf<E, P> {
    inner: E,
    predicate: P,
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

impl_debug!([E: std::fmt::Debug, P] ExemptIf<E, P>, |it| inner = it.inner);
