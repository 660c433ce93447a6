//! The trait of key extractors.

use std::sync::Arc;

use super::{Extracted, IntoKey, Key, MissingKey};

/// Derives the key of a request.
///
/// Implemented for functions `Fn(&Req) -> T` whose result is [`IntoKey`], and for tuples of extractors, whose keys are
/// joined. Extractors are synchronous: a look-up (of a session or a tenant) belongs in an outer layer, which puts the result
/// into the request's extensions for [`Extension`](super::Extension).
///
/// # Examples
///
/// A closure. A [`Key`] of borrowed text takes no allocation, and a [`MissingKey`] tells the client what to send:
///
/// ```
/// use http::Request;
/// use tollgate::{RateLimitLayer, TokenBucket, key::{Key, MissingKey}};
///
/// let version = |request: &Request<String>| {
///     let version = request.uri().path().split('/').nth(1).filter(|part| part.starts_with('v'));
///     version.map(Key::from).ok_or(MissingKey::new("the path must begin with a version, as in `/v1/users`"))
/// };
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(version);
/// # use tollgate::key::{Extracted, KeyExtractor};
/// # let request = Request::builder().uri("/v1/users").body(String::new()).unwrap();
/// # assert_eq!(version.extract(&request), Ok(Extracted::Key(Key::from("v1"))));
/// # let _ = layer;
/// ```
///
/// A type of your own, which can have settings, and combines with others through
/// [`KeyExtractorExt`](super::KeyExtractorExt):
///
/// ```
/// use http::Request;
/// use tollgate::key::{Extracted, Key, KeyExtractor, KeyExtractorExt, MissingKey};
///
/// /// Limits by a segment of the path.
/// #[derive(Clone)]
/// struct Segment(usize);
///
/// impl<B> KeyExtractor<Request<B>> for Segment {
///     fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
///         let segment = req.uri().path().split('/').nth(self.0 + 1).filter(|text| !text.is_empty());
///         let segment = segment.ok_or_else(|| MissingKey::new(format!("there must be a segment {}", self.0)))?;
///         Ok(Key::from(segment).into())
///     }
/// }
///
/// impl KeyExtractorExt for Segment {}
///
/// let by_tenant = Segment(0).or_shared("nobody");
/// let request = Request::builder().uri("/acme/orders").body(()).unwrap();
/// assert_eq!(by_tenant.extract(&request), Ok(Extracted::Key(Key::from("acme"))));
/// assert_eq!(by_tenant.extract(&Request::new(())), Ok(Extracted::Key(Key::shared("nobody"))));
/// ```
///
/// An extractor that is chosen at run time:
///
/// ```
/// use std::sync::Arc;
/// use http::Request;
/// use tollgate::{RateLimitLayer, TokenBucket, key::{Global, Header, KeyExtractor}};
///
/// type AnyKey = Arc<dyn KeyExtractor<Request<String>> + Send + Sync>;
/// let per_client = true;
/// let key: AnyKey = if per_client { Arc::new(Header::new("x-api-key")) } else { Arc::new(Global) };
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(key);
/// # let _ = layer;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not derive a key from `{Req}`",
    note = "a key extractor is one of `tollgate::key` (most of them read an `http::Request`), \
            a tuple of them, or a closure `|request: &{Req}| …` with its argument's type \
            written out that returns a `Key` (of borrowed text `Key::from(text)`), an `Option<Key>` or a \
            `Result<Key, MissingKey>`",
    note = "the request's type is known only where the layer meets its service, so the error points there; correct the argument of `.key(…)`",
    note = "an `async` closure returns no key: await in an outer layer, which inserts what it finds into the request's extensions, and read it by \
            `key::Extension`"
)]
pub trait KeyExtractor<Req: ?Sized> {
    /// Returns the key of `req`, or exempts it.
    ///
    /// # Errors
    ///
    /// Returns an error if the request has no key.
    fn extract(&self, req: &Req) -> Result<Extracted, MissingKey>;

    /// Returns the key if it takes a few loads; `None` leaves it to [`extract`](Self::extract).
    // For a layer's shortest path. It must be inlined, pass no reference to the request on, and have no side effects.
    #[doc(hidden)]
    #[inline(always)]
    fn key_at_hand(&self, req: &Req) -> Option<Key> {
        let _ = req;
        None
    }
}

#[diagnostic::do_not_recommend]
impl<F, Req, T> KeyExtractor<Req> for F
where
    Req: ?Sized,
    F: Fn(&Req) -> T,
    T: IntoKey,
{
    fn extract(&self, req: &Req) -> Result<Extracted, MissingKey> {
        self(req).into_key()
    }
}

/// A shared extractor, which may be chosen at run time.
impl<Req: ?Sized, K: KeyExtractor<Req> + ?Sized> KeyExtractor<Req> for Arc<K> {
    fn extract(&self, req: &Req) -> Result<Extracted, MissingKey> {
        (**self).extract(req)
    }
}

macro_rules! tuples {
    ($($name:ident)+) => {
        /// The joined key of all parts. The request is exempt if one of the parts is.
        impl<Req: ?Sized, $($name: KeyExtractor<Req>),+> KeyExtractor<Req> for ($($name,)+) {
            fn extract(&self, req: &Req) -> Result<Extracted, MissingKey> {
                #[allow(non_snake_case)]
                let ($($name,)+) = self;
                $(
                    #[allow(non_snake_case)]
                    let $name = match $name.extract(req)? {
                        Extracted::Key(key) => key,
                        Extracted::Exempt => return Ok(Extracted::Exempt),
                    };
                )+
                Ok(Extracted::Key(Key::join([$($name),+])))
            }
        }
    };
}

tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
