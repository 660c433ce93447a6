//! What derives a key from a request.

use std::fmt;

use http::StatusCode;

use super::Key;

/// Derives the key of a request.
///
/// Extractors are synchronous. Where a look-up is needed (a session, a tenant), a
/// layer outside of the limit does it and puts the result into the request's extensions,
/// from where [`Extension`](super::Extension) takes it.
///
/// Implemented for functions `Fn(&Req) -> T` of everything that is
/// [`IntoKey`], and for tuples of extractors, whose keys are joined.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not derive a key from `{Req}`",
    note = "a key extractor is one of `tollgate::key` (most of them read an `http::Request`), \
            a tuple of them, or a closure `|request: &{Req}| …` with its argument's type \
            written out that returns a `Key`, an `Option<Key>` or a `Result<Key, MissingKey>`"
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
    Exempt,
}

impl From<Key> for Extracted {
    fn from(key: Key) -> Self {
        Self::Key(key)
    }
}

/// The request does not hold what the key is made of.
///
/// The layer answers with [`status`](Self::status), 400 unless changed, and spends
/// nothing. `.or(…)`, `.or_shared(…)`, `.or_exempt()` and `.or_refuse(…)` on the extractor choose something
/// else.
#[derive(Clone, PartialEq, Eq)]
pub struct MissingKey {
    what: std::borrow::Cow<'static, str>,
    status: StatusCode,
    server_fault: bool,
}

impl MissingKey {
    /// `what` was not in the request: a phrase like "no header `x-api-key`".
    pub fn new(what: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self {
            what: what.into(),
            status: StatusCode::BAD_REQUEST,
            server_fault: false,
        }
    }

    /// The server was set up without what the key needs: answered with 500 and logged once.
    pub fn misconfigured(what: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            server_fault: true,
            ..Self::new(what)
        }
    }

    /// The same, answered with another status.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// The status to answer with.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether the server lacks something, rather than the request.
    ///
    /// The client is told no details then.
    pub fn is_server_fault(&self) -> bool {
        self.server_fault
    }

    /// What was missing, in a phrase.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Debug for MissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MissingKey({}: {})", self.status.as_u16(), self.what)
    }
}

impl fmt::Display for MissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the request cannot be limited: {}", self.what)
    }
}

impl std::error::Error for MissingKey {}

/// What a closure may return as a key.
pub trait IntoKey {
    /// The key, an exemption, or what is missing.
    ///
    /// # Errors
    ///
    /// When there is no key.
    fn into_key(self) -> Result<Extracted, MissingKey>;
}

impl<T: Into<Key>> IntoKey for T {
    fn into_key(self) -> Result<Extracted, MissingKey> {
        Ok(Extracted::Key(self.into()))
    }
}

impl<T: Into<Key>> IntoKey for Option<T> {
    fn into_key(self) -> Result<Extracted, MissingKey> {
        self.map(|key| Extracted::Key(key.into()))
            .ok_or_else(|| MissingKey::new("the key function found no key"))
    }
}

impl<T: Into<Extracted>> IntoKey for Result<T, MissingKey> {
    fn into_key(self) -> Result<Extracted, MissingKey> {
        self.map(Into::into)
    }
}

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
