//! The methods that combine extractors.

use http::StatusCode;

use super::{
    BearerToken, Extension, Forwarded, ForwardedFor, FromFn, Global, Header, Key, Method, Path,
    PeerIp,
    compose::{Exempting, Labelled, Or, OrExempt, OrRefuse, OrShared, Tagged},
};

/// What every extractor can be combined with.
///
/// Closures get these methods from [`from_fn`](super::from_fn); an extractor of one's own by
/// `impl KeyExtractorExt for Mine {}`.
///
/// ```
/// use http::Request;
/// use tollgate::key::{Header, KeyExtractor, KeyExtractorExt, PeerIp, cors_preflight, paths};
///
/// let key = Header::new("x-api-key")
///     .or(PeerIp::new())
///     .exempting(cors_preflight)
///     .exempting(paths(["/health"]))
///     .exempting(|req: &Request<String>| req.body().is_empty());
/// assert!(key.extract(&Request::new("hello".to_owned())).is_err());
/// ```
// The trait does not name the request: with `KeyExtractorExt<Req>` no method could be called
// before `Req` is known, which it is only where the layer meets its service. It is not a blanket
// over all types either, since then everything would have these methods wherever the prelude is in scope.
pub trait KeyExtractorExt: Sized {
    /// Asks `other` where this one finds no key.
    ///
    /// An exemption is not a missing key. If both find none, the server's fault is told before
    /// the client's, otherwise what `other` misses.
    ///
    /// Two sources that hold equal bytes give equal keys. If one of them is checked and the other
    /// one is not, a client may spend another's budget by sending that one's id: keep them
    /// apart by [`tagged`](Self::tagged).
    fn or<T>(self, other: T) -> Or<Self, T> {
        Or::new(self, other)
    }

    /// Lets the requests without a key share one of this name, which no client can send.
    fn or_shared(self, name: &str) -> OrShared<Self> {
        OrShared::new(self, Key::shared(name))
    }

    /// Does not limit the requests without a key.
    #[doc(alias("whitelist", "skip", "unlimited"))]
    fn or_exempt(self) -> OrExempt<Self> {
        OrExempt::new(self)
    }

    /// Refuses the requests without a key with this status instead of 400.
    fn or_refuse(self, status: StatusCode) -> OrRefuse<Self> {
        OrRefuse::new(self, status)
    }

    /// Does not limit the requests that `predicate` picks, whether they have a key or not.
    ///
    /// A predicate is `Fn(&Req) -> bool`, or one of [`cors_preflight`](super::cors_preflight) and
    /// [`paths`](super::paths).
    #[doc(alias("whitelist", "allowlist", "skip", "unlimited", "bypass"))]
    fn exempting<P>(self, predicate: P) -> Exempting<Self, P> {
        Exempting::new(self, predicate)
    }

    /// Lets the keys be printed and stored in readable form, as [`Key::labelled`] does.
    fn labelled(self) -> Labelled<Self> {
        Labelled::new(self)
    }

    /// Puts a name in front of the keys, so that they never equal those of another source.
    fn tagged(self, name: &str) -> Tagged<Self> {
        Tagged::new(self, Key::shared(name))
    }
}

impl KeyExtractorExt for BearerToken {}
impl KeyExtractorExt for Forwarded {}
impl KeyExtractorExt for ForwardedFor {}
impl KeyExtractorExt for Global {}
impl KeyExtractorExt for Header {}
#[cfg(feature = "axum")]
impl KeyExtractorExt for super::MatchedPath {}
impl KeyExtractorExt for Method {}
impl KeyExtractorExt for Path {}
impl KeyExtractorExt for PeerIp {}

impl<T, F> KeyExtractorExt for Extension<T, F> {}
impl<F> KeyExtractorExt for FromFn<F> {}

impl<A, B> KeyExtractorExt for Or<A, B> {}
impl<E> KeyExtractorExt for OrShared<E> {}
impl<E> KeyExtractorExt for OrExempt<E> {}
impl<E> KeyExtractorExt for OrRefuse<E> {}
impl<E, P> KeyExtractorExt for Exempting<E, P> {}
impl<E> KeyExtractorExt for Labelled<E> {}
impl<E> KeyExtractorExt for Tagged<E> {}

impl<A, B> KeyExtractorExt for (A, B)
where
    A: KeyExtractorExt,
    B: KeyExtractorExt,
{
}
impl<A, B, C> KeyExtractorExt for (A, B, C)
where
    A: KeyExtractorExt,
    B: KeyExtractorExt,
    C: KeyExtractorExt,
{
}
impl<A, B, C, D> KeyExtractorExt for (A, B, C, D)
where
    A: KeyExtractorExt,
    B: KeyExtractorExt,
    C: KeyExtractorExt,
    D: KeyExtractorExt,
{
}
