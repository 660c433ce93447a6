//! The extractors that the methods of `KeyExtractorExt` return.

use std::fmt;

use http::StatusCode;

use super::{Extracted, Key, KeyExtractor, MissingKey, Predicate};

/// An extractor with an alternative: made by [`or`](super::KeyExtractorExt::or).
///
/// ```
/// use tollgate::key::{Header, KeyExtractorExt, Or, PeerIp};
///
/// let key: Or<Header, PeerIp> = Header::new("x-api-key").or(PeerIp::new());
/// # let _ = key;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A, B> Or<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<Req, A, B> KeyExtractor<Req> for Or<A, B>
where
    Req: ?Sized,
    A: KeyExtractor<Req>,
    B: KeyExtractor<Req>,
{
    fn extract(&self, req: &Req) -> Result<Extracted, MissingKey> {
        let first = match self.first.extract(req) {
            Err(missing) if missing.may_be_replaced() => missing,
            result => return result,
        };
        self.second.extract(req).map_err(|second| {
            // The error of a misconfigured server must reach its operator.
            if first.is_server_fault() && second.may_be_replaced() {
                first
            } else {
                second
            }
        })
    }
}

/// An extractor with a shared key for requests without one: made by [`or_shared`](super::KeyExtractorExt::or_shared).
///
/// ```
/// use tollgate::key::{Header, KeyExtractorExt, OrShared};
///
/// let key: OrShared<Header> = Header::new("x-api-key").or_shared("anonymous");
/// # let _ = key;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OrShared<E> {
    inner: E,
    shared: Key,
}

impl<E> OrShared<E> {
    pub(super) fn new(inner: E, shared: Key) -> Self {
        Self { inner, shared }
    }
}

impl<Req: ?Sized, E: KeyExtractor<Req>> KeyExtractor<Req> for OrShared<E> {
    fn extract(&self, req: &Req) -> Result<Extracted, MissingKey> {
        match self.inner.extract(req) {
            Err(missing) if missing.may_be_replaced() => Ok(Extracted::Key(self.shared)),
            result => result,
        }
    }
}

/// An extractor that exempts requests without a key: made by [`or_exempt`](super::KeyExtractorExt::or_exempt).
///
/// ```
/// use tollgate::key::{Header, KeyExtractorExt, OrExempt};
///
/// let key: OrExempt<Header> = Header::new("x-crawler").or_exempt();
/// # let _ = key;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OrExempt<E> {
    inner: E,
}

impl<E> OrExempt<E> {
    pub(super) fn new(inner: E) -> Self {
        Self { inner }
    }
}

impl<Req: ?Sized, E: KeyExtractor<Req>> KeyExtractor<Req> for OrExempt<E> {
    fn extract(&self, req: &Req) -> Result<Extracted, MissingKey> {
        match self.inner.extract(req) {
            Err(missing) if missing.may_be_replaced() => Ok(Extracted::Exempt),
            result => result,
        }
    }
}

/// An extractor with a status for requests without a key: made by [`or_refuse`](super::KeyExtractorExt::or_refuse).
///
/// ```
/// use tollgate::key::{Header, KeyExtractorExt, OrRefuse};
///
/// let status = http::StatusCode::FORBIDDEN;
/// let key: OrRefuse<Header> = Header::new("x-api-key").or_refuse(status);
/// # let _ = key;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OrRefuse<E> {
    inner: E,
    status: StatusCode,
}

impl<E> OrRefuse<E> {
    pub(super) fn new(inner: E, status: StatusCode) -> Self {
        Self { inner, status }
    }
}

impl<Req: ?Sized, E: KeyExtractor<Req>> KeyExtractor<Req> for OrRefuse<E> {
    fn extract(&self, req: &Req) -> Result<Extracted, MissingKey> {
        match self.inner.extract(req) {
            Err(missing) if missing.may_be_replaced() => Err(missing.with_status(self.status)),
            result => result,
        }
    }
}

/// An extractor that exempts some requests: made by [`exempt_if`](super::KeyExtractorExt::exempt_if).
///
/// ```
/// use tollgate::key::{ExemptIf, Global, KeyExtractorExt, Paths, paths};
///
/// let key: ExemptIf<Global, Paths> = Global.exempt_if(paths(["/health"]));
/// # let _ = key;
/// ```
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

/// An extractor of keys that may be printed: made by [`labelled`](super::KeyExtractorExt::labelled).
///
/// ```
/// use tollgate::key::{KeyExtractorExt, Labelled, Path};
///
/// let key: Labelled<Path> = Path.labelled();
/// # let _ = key;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Labelled<E> {
    inner: E,
}

impl<E> Labelled<E> {
    pub(super) fn new(inner: E) -> Self {
        Self { inner }
    }
}

impl<Req: ?Sized, E: KeyExtractor<Req>> KeyExtractor<Req> for Labelled<E> {
    fn extract(&self, req: &Req) -> Result<Extracted, MissingKey> {
        Ok(match self.inner.extract(req)? {
            Extracted::Key(key) => Extracted::Key(key.labelled()),
            Extracted::Exempt => Extracted::Exempt,
        })
    }
}

/// An extractor of keys with a name in front: made by [`tagged`](super::KeyExtractorExt::tagged).
///
/// ```
/// use tollgate::key::{Header, KeyExtractorExt, Tagged};
///
/// let key: Tagged<Header> = Header::new("x-id").tagged("user");
/// # let _ = key;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Tagged<E> {
    inner: E,
    tag: Key,
}

impl<E> Tagged<E> {
    pub(super) fn new(inner: E, tag: Key) -> Self {
        Self { inner, tag }
    }
}

impl<Req: ?Sized, E: KeyExtractor<Req>> KeyExtractor<Req> for Tagged<E> {
    fn extract(&self, req: &Req) -> Result<Extracted, MissingKey> {
        Ok(match self.inner.extract(req)? {
            Extracted::Key(key) => Extracted::Key(Key::join([self.tag, key])),
            Extracted::Exempt => Extracted::Exempt,
        })
    }
}
