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
/// let tenant = |request: &Request<String>| {
///     let host = request.uri().host();
///     host.map(Key::from).ok_or(MissingKey::new("there must be a host in the target"))
/// };
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(tenant);
/// # use tollgate::key::{Extracted, KeyExtractor};
/// # let request = Request::builder().uri("http://acme.example/").body(String::new()).unwrap();
/// # assert_eq!(tenant.extract(&request), Ok(Extracted::Key(Key::from("acme.example"))));
/// # let _ = layer;
/// ```
///
/// A type of your own, which can have settings, and combines with others through
/// [`KeyExtractorExt`](super::KeyExtractorExt):
///
/// ```
/// use http::{Request, header::COOKIE};
/// use tollgate::key::{Extracted, Key, KeyExtractor, KeyExtractorExt, MissingKey};
///
/// /// Limits by the value of a cookie.
/// #[derive(Clone)]
/// struct Cookie {
///     name: String,
/// }
///
/// impl<B> KeyExtractor<Request<B>> for Cookie {
///     fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
///         let cookies = req.headers().get(COOKIE).and_then(|value| value.to_str().ok());
///         let mut pairs = cookies.unwrap_or_default().split("; ").filter_map(|pair| pair.split_once('='));
///         match pairs.find(|(name, _)| *name == self.name) {
///             Some((_, value)) => Ok(Key::from(value).into()),
///             None => Err(MissingKey::new(format!("there must be a cookie `{}`", self.name))),
///         }
///     }
/// }
///
/// impl KeyExtractorExt for Cookie {}
///
/// let by_session = Cookie { name: "session".to_owned() }.or_shared("anonymous");
/// let request = Request::builder().header("cookie", "lang=en; session=8f3a").body(()).unwrap();
/// assert_eq!(by_session.extract(&request), Ok(Extracted::Key(Key::from("8f3a"))));
/// assert_eq!(by_session.extract(&Request::new(())), Ok(Extracted::Key(Key::shared("anonymous"))));
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
            `Result<Key, MissingKey>`"
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
