//! What derives a key from a request.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use super::{Key, MissingKey};

/// Derives the key of a request.
///
/// Extractors are synchronous. Where a look-up is needed (a session, a tenant), a
/// layer outside of the limit does it and puts the result into the request's extensions,
/// from where [`Extension`](super::Extension) takes it.
///
/// Implemented for functions `Fn(&Req) -> T` of everything that is
/// [`IntoKey`], and for tuples of extractors, whose keys are joined. A function returns no borrow of
/// the request, but a [`Key`] made of it, which costs no allocation; a [`MissingKey`] tells the client what to send:
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
/// One that is chosen at run time is shared:
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
    /// The key that `req` is limited under.
    ///
    /// # Errors
    ///
    /// When the request does not hold what the key is made of.
    fn extract(&self, req: &Req) -> Result<Extracted, MissingKey>;
}

/// What an extractor found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extracted {
    /// The key to limit under.
    Key(Key),
    /// This request is not limited.
    #[doc(alias("unlimited", "skip", "whitelist", "allowlist"))]
    Exempt,
}

impl From<Key> for Extracted {
    fn from(key: Key) -> Self {
        Self::Key(key)
    }
}

/// What a closure may return as a key.
///
/// No borrowed text, which a closure cannot return of its request: `Key::from(text)` is a key of it, and costs no
/// allocation. Types of one's own implement this trait.
#[diagnostic::on_unimplemented(
    message = "a key function cannot return `{Self}`",
    note = "it returns a `Key` (of borrowed text `Key::from(text)`), a `String`, an address, a `u64`, an `Extracted`, \
            or an `Option` or a `Result<_, MissingKey>` of these"
)]
pub trait IntoKey {
    /// The key, an exemption, or what is missing.
    ///
    /// # Errors
    ///
    /// When there is no key.
    fn into_key(self) -> Result<Extracted, MissingKey>;
}

macro_rules! keys {
    ($($Type:ty),+) => {$(
        impl IntoKey for $Type {
            fn into_key(self) -> Result<Extracted, MissingKey> {
                Ok(Extracted::Key(self.into()))
            }
        }
    )+};
}

// Not of everything that is `Into<Key>`: a closure that returns borrowed text would be met by an error about lifetimes,
// which says nothing of keys.
keys!(Key, String, u64, IpAddr, Ipv4Addr, Ipv6Addr);

impl IntoKey for Extracted {
    fn into_key(self) -> Result<Extracted, MissingKey> {
        Ok(self)
    }
}

impl<T: IntoKey> IntoKey for Option<T> {
    fn into_key(self) -> Result<Extracted, MissingKey> {
        self.map_or_else(
            || Err(MissingKey::new("there must be a key in the request")),
            T::into_key,
        )
    }
}

impl<T: IntoKey> IntoKey for Result<T, MissingKey> {
    fn into_key(self) -> Result<Extracted, MissingKey> {
        self.and_then(T::into_key)
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

/// A shared extractor, perhaps one that was chosen at run time.
impl<Req: ?Sized, K: KeyExtractor<Req> + ?Sized> KeyExtractor<Req> for Arc<K> {
    fn extract(&self, req: &Req) -> Result<Extracted, MissingKey> {
        (**self).extract(req)
    }
}

/// One key for everybody: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Global;

impl<Req: ?Sized> KeyExtractor<Req> for Global {
    #[inline]
    fn extract(&self, _: &Req) -> Result<Extracted, MissingKey> {
        Ok(Extracted::Key(Key::GLOBAL))
    }
}

macro_rules! tuples {
    ($($name:ident)+) => {
        /// The joined key of all parts; exempt as soon as one part is.
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
