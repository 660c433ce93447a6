//! Conversion of the results of closures into keys.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Extracted, Key, MissingKey};

/// Types that a key closure may return.
///
/// A closure cannot return borrowed text of its request. It returns `Key::from(text)`, which takes no allocation.
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

// Not for all types that are `Into<Key>`: for a closure that returns borrowed text, the compiler would then report an
// error about lifetimes that does not mention keys.
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
