//! Combinations of extractors.

use std::fmt;

use http::StatusCode;

use super::{Extracted, Key, KeyExtractor, MissingKey, Predicate};

/// The first key that either of two extractors finds; see [`or`](super::KeyExtractorExt::or).
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
            Ok(found) => return Ok(found),
            Err(missing) => missing,
        };
        self.second.extract(req).map_err(|second| {
            // An operator must hear of a server that is set up wrongly.
            if first.is_server_fault() {
                first
            } else {
                second
            }
        })
    }
}

/// One key for all that have none; see [`or_shared`](super::KeyExtractorExt::or_shared).
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
        Ok(self
            .inner
            .extract(req)
            .unwrap_or(Extracted::Key(self.shared)))
    }
}

/// No limit for all that have no key; see [`or_exempt`](super::KeyExtractorExt::or_exempt).
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
        Ok(self.inner.extract(req).unwrap_or(Extracted::Exempt))
    }
}

/// Another status for all that have no key; see [`or_refuse`](super::KeyExtractorExt::or_refuse).
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
        self.inner
            .extract(req)
            .map_err(|missing| missing.with_status(self.status))
    }
}

/// No limit for some requests; see [`exempting`](super::KeyExtractorExt::exempting).
#[derive(Clone, Copy)]
pub struct Exempting<E, P> {
    inner: E,
    predicate: P,
}

impl<E, P> Exempting<E, P> {
    pub(super) fn new(inner: E, predicate: P) -> Self {
        Self { inner, predicate }
    }
}

impl<Req, E, P> KeyExtractor<Req> for Exempting<E, P>
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

impl<E: fmt::Debug, P> fmt::Debug for Exempting<E, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exempting")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// Keys that may be printed; see [`labelled`](super::KeyExtractorExt::labelled).
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

/// Keys with a name in front; see [`tagged`](super::KeyExtractorExt::tagged).
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
