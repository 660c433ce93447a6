//! Closures with the methods of `KeyExtractorExt`.

use std::{any::type_name, fmt};

use super::{Extracted, IntoKey, KeyExtractor, MissingKey};

/// Wraps a closure, so that it has the methods of [`KeyExtractorExt`](super::KeyExtractorExt).
///
/// A closure that is not combined needs no wrapper: it is a [`KeyExtractor`].
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::key::{Extracted, Key, KeyExtractor, KeyExtractorExt, from_fn};
///
/// let by_version = from_fn(|req: &Request<()>| Some(format!("{:?}", req.version())))
///     .or_shared("unknown");
/// assert_eq!(
///     by_version.extract(&Request::new(())),
///     Ok(Extracted::Key(Key::from("HTTP/1.1"))),
/// );
/// ```
pub fn from_fn<Req, F, T>(function: F) -> FromFn<F>
where
    Req: ?Sized,
    F: Fn(&Req) -> T,
    T: IntoKey,
{
    FromFn { function }
}

/// An extractor that calls a closure: made by [`from_fn`].
///
/// ```
/// use http::Request;
/// use tollgate::key::{FromFn, Key, from_fn};
///
/// fn by_query() -> FromFn<fn(&Request<()>) -> Option<Key>> {
///     from_fn(|req| req.uri().query().map(Key::from))
/// }
/// # let _ = by_query();
/// ```
#[derive(Clone, Copy)]
pub struct FromFn<F> {
    function: F,
}

impl<Req, F, T> KeyExtractor<Req> for FromFn<F>
where
    Req: ?Sized,
    F: Fn(&Req) -> T,
    T: IntoKey,
{
    fn extract(&self, req: &Req) -> Result<Extracted, MissingKey> {
        (self.function)(req).into_key()
    }
}

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FromFn({})", type_name::<F>())
    }
}
