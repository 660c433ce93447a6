//! The trait of key extractors, and the conversion of what a closure returns into a key.

use std::{
    any::type_name,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::ControlFlow,
    sync::Arc,
};

use super::{Key, KeyExtractorExt, MissingKey, missing_key::NO_KEY};

/// Derives the key of a request.
///
/// Implemented for functions `Fn(&Req) -> T` whose result is [`IntoKey`], and for tuples of
/// extractors, whose keys are joined. Extractors are synchronous: a look-up (of a session or a
/// tenant) belongs in an outer layer, which puts the result into the request's extensions for
/// [`Extension`](super::Extension).
///
/// # Examples
///
/// A closure. A [`Key`] of borrowed text takes no allocation, and a [`MissingKey`] tells the client
/// what to send:
///
/// ```
/// use http::Request;
/// use tollgate::{RateLimitLayer, TokenBucket, key::{Key, MissingKey}};
///
/// let version = |request: &Request<String>| {
///     let version = request
///         .uri()
///         .path()
///         .split('/')
///         .nth(1)
///         .filter(|part| part.starts_with('v'));
///     version.map(Key::from).ok_or(MissingKey::new(
///         "the path must begin with a version, as in `/v1/users`",
///     ))
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
/// /// Limits by a segment of the path. Routers decode escapes, so one with an escape is no key.
/// #[derive(Clone)]
/// struct Segment(usize);
///
/// impl<B> KeyExtractor<Request<B>> for Segment {
///     fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
///         let segment = req
///             .uri()
///             .path()
///             .split('/')
///             .nth(self.0 + 1)
///             .filter(|text| !text.is_empty() && !text.contains('%'));
///         let segment = segment
///             .ok_or_else(|| MissingKey::new(format!("there must be a segment {}", self.0)))?;
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
/// An extractor that is chosen at run time; [`AnyKey`](super::AnyKey) reads one from text:
///
/// ```
/// use std::sync::Arc;
/// use http::Request;
/// use tollgate::{RateLimitLayer, TokenBucket, key::{Global, Header, KeyExtractor}};
///
/// type ChosenKey = Arc<dyn KeyExtractor<Request<String>> + Send + Sync>;
/// let per_client = true;
/// let key: ChosenKey = if per_client {
///     Arc::new(Header::new("x-api-key"))
/// } else {
///     Arc::new(Global)
/// };
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

    /// Returns the key if it can be read by a few loads; `None` if [`extract`](Self::extract) must
    /// be called.
    // For the fast path of a layer. It must be inlined, pass on no reference to the request, and
    // have no side effects.
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

/// Returns a part of a joined key, or the result of the whole if no further part can change it.
///
/// `first` is the first error of a request without a key; the part is then a placeholder.
#[inline]
pub(super) fn joined_part(
    part: Result<Extracted, MissingKey>,
    first: &mut Option<MissingKey>,
) -> ControlFlow<Result<Extracted, MissingKey>, Key> {
    ControlFlow::Continue(match part {
        Ok(Extracted::Key(key)) => key,
        Ok(Extracted::Exempt) if first.is_none() => {
            return ControlFlow::Break(Ok(Extracted::Exempt));
        }
        Ok(Extracted::Exempt) => Key::GLOBAL,
        // The parts behind it may lack what a combinator must not hide.
        Err(missing) if missing.may_be_replaced() => {
            first.get_or_insert(missing);
            Key::GLOBAL
        }
        Err(fault) => return ControlFlow::Break(Err(fault)),
    })
}

macro_rules! tuples {
    ($($name:ident)+) => {
        /// The joined key of all parts. The request is exempt if one of the parts is.
        ///
        /// If parts have no key, the first error is returned, unless one is
        /// [misconfigured](MissingKey::misconfigured).
        impl<Req: ?Sized, $($name: KeyExtractor<Req>),+> KeyExtractor<Req> for ($($name,)+) {
            fn extract(&self, req: &Req) -> Result<Extracted, MissingKey> {
                #[allow(non_snake_case)]
                let ($($name,)+) = self;
                let mut first = None;
                $(
                    #[allow(non_snake_case)]
                    let $name = match joined_part($name.extract(req), &mut first) {
                        ControlFlow::Continue(key) => key,
                        ControlFlow::Break(result) => return result,
                    };
                )+
                match first {
                    None => Ok(Extracted::Key(Key::join([$($name),+]))),
                    Some(missing) => Err(missing),
                }
            }
        }

        impl<$($name: KeyExtractorExt),+> KeyExtractorExt for ($($name,)+) {}
    };
}

tuples!(A B);
tuples!(A B C);
tuples!(A B C D);

/// The result of a [`KeyExtractor`]: a key, or an exemption.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::key::{Extracted, Key, KeyExtractor};
///
/// let by_origin = |request: &Request<()>| match request.headers().get("x-internal") {
///     Some(_) => Extracted::Exempt,
///     None => Key::GLOBAL.into(),
/// };
/// assert_eq!(by_origin.extract(&Request::new(())), Ok(Extracted::Key(Key::GLOBAL)));
/// ```
#[doc(alias("exempt", "unlimited"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extracted {
    /// The request is limited under this key.
    Key(Key),
    /// The request is not limited.
    Exempt,
}

impl From<Key> for Extracted {
    fn from(key: Key) -> Self {
        Self::Key(key)
    }
}

/// Limits all requests together, under one key. This is the default.
///
/// # Examples
///
/// ```
/// use tollgate::key::{Extracted, Global, Key, KeyExtractor};
///
/// assert_eq!(Global.extract("any request"), Ok(Extracted::Key(Key::GLOBAL)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Global;

impl<Req: ?Sized> KeyExtractor<Req> for Global {
    #[inline]
    fn extract(&self, _: &Req) -> Result<Extracted, MissingKey> {
        Ok(Extracted::Key(Key::GLOBAL))
    }

    #[inline(always)]
    fn key_at_hand(&self, _: &Req) -> Option<Key> {
        Some(Key::GLOBAL)
    }
}

/// Types that a key closure may return.
///
/// A closure cannot return borrowed text of its request. It returns `Key::from(text)`, which takes
/// no allocation.
///
/// # Examples
///
/// A type of the application as a key:
///
/// ```
/// use http::Request;
/// use tollgate::key::{Extracted, IntoKey, Key, KeyExtractor, MissingKey};
///
/// #[derive(Clone, Copy)]
/// enum Plan { Free, Paid }
///
/// impl IntoKey for Plan {
///     fn into_key(self) -> Result<Extracted, MissingKey> {
///         Ok(match self {
///             Plan::Free => Extracted::Key(Key::shared("free")),
///             Plan::Paid => Extracted::Exempt,
///         })
///     }
/// }
///
/// let by_plan = |request: &Request<()>| request.extensions().get::<Plan>().copied();
/// let mut request = Request::new(());
/// assert!(by_plan.extract(&request).is_err());
/// request.extensions_mut().insert(Plan::Paid);
/// assert_eq!(by_plan.extract(&request), Ok(Extracted::Exempt));
/// ```
#[diagnostic::on_unimplemented(
    message = "a key function cannot return `{Self}`",
    note = "it returns a `Key` (of borrowed text `Key::from(text)`), a `String`, an address, a `u64`, an `Extracted`, \
            or an `Option` or a `Result<_, MissingKey>` of these; an `async` function returns none of them: await in an outer layer, and \
            read what it found by `key::Extension`"
)]
pub trait IntoKey {
    /// Returns the key or an exemption.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no key.
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

// Not for all types that are `Into<Key>`: for a closure that returns borrowed text, the compiler
// would then report an error about lifetimes that does not mention keys.
keys!(Key, String, u64, IpAddr, Ipv4Addr, Ipv6Addr);

impl IntoKey for Extracted {
    fn into_key(self) -> Result<Extracted, MissingKey> {
        Ok(self)
    }
}

impl<T: IntoKey> IntoKey for Option<T> {
    fn into_key(self) -> Result<Extracted, MissingKey> {
        self.map_or_else(|| Err(MissingKey::new(NO_KEY)), T::into_key)
    }
}

impl<T: IntoKey> IntoKey for Result<T, MissingKey> {
    fn into_key(self) -> Result<Extracted, MissingKey> {
        self.and_then(T::into_key)
    }
}

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
