//! Keys that clients send in a header.

use std::{fmt, sync::Arc};

use http::{HeaderMap, HeaderName, Request, header::AUTHORIZATION};

use super::{Extracted, Key, KeyExtractor, MissingKey};
use crate::error::Error;

/// The bytes of a header, of any length, text or not.
///
/// Blanks around the value do not count, and an empty value is a missing one. **So is a
/// header of several lines**: whichever line this took, the service behind might take
/// another one, and a client could put a fresh key into the one that is limited.
///
/// A client may send whatever it likes: limit by a header that is checked, or
/// limit the unchecked ones by their address as well.
///
/// ```
/// use http::Request;
/// use tollgate::key::{Extracted, Header, Key, KeyExtractor};
///
/// let by_key = Header::new("x-api-key");
/// let request = Request::builder().header("X-Api-Key", "s3cret").body(()).unwrap();
/// assert_eq!(by_key.extract(&request), Ok(Extracted::Key(Key::bytes(b"s3cret"))));
///
/// let missing = by_key.extract(&Request::new(())).unwrap_err();
/// assert_eq!(missing.what(), "there must be one header `x-api-key` with a value");
/// ```
#[derive(Clone)]
pub struct Header {
    name: HeaderName,
    missing: Arc<str>,
}

impl Header {
    /// The header of this name, in upper or lower case.
    ///
    /// # Panics
    ///
    /// When `name` cannot be a header's name; meant for literals.
    #[track_caller]
    pub fn new(name: &str) -> Self {
        match Self::try_new(name) {
            Ok(header) => header,
            Err(error) => panic!("{error}"),
        }
    }

    /// The header of this name, in upper or lower case.
    ///
    /// # Errors
    ///
    /// When `name` cannot be a header's name.
    pub fn try_new(name: &str) -> Result<Self, Error> {
        let name = parse_name(name)?;
        Ok(Self {
            missing: format!("there must be one header `{name}` with a value").into(),
            name,
        })
    }
}

impl<B> KeyExtractor<Request<B>> for Header {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        match only_value(req.headers(), &self.name) {
            Some(value) => Ok(Extracted::Key(Key::bytes(value))),
            None => Err(MissingKey::shared(&self.missing)),
        }
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Header").field(&self.name).finish()
    }
}

/// The token of `Authorization: Bearer …` (RFC 6750 §2.1).
///
/// The scheme may be in upper or lower case. The token may hold any bytes but blanks, more
/// than the RFC allows. It is not checked: whoever sends a fresh token gets a fresh
/// budget, unless a layer outside of this one turns unknown tokens away.
///
/// A request without one is refused with 401 and the challenge `Bearer`.
///
/// ```
/// use http::{Request, StatusCode};
/// use tollgate::key::{BearerToken, Extracted, Key, KeyExtractor};
///
/// let request = Request::builder().header("authorization", "bearer abc").body(()).unwrap();
/// assert_eq!(BearerToken.extract(&request), Ok(Extracted::Key(Key::bytes(b"abc"))));
///
/// let missing = BearerToken.extract(&Request::new(())).unwrap_err();
/// assert_eq!(missing.status(), StatusCode::UNAUTHORIZED);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct BearerToken;

impl<B> KeyExtractor<Request<B>> for BearerToken {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        match only_value(req.headers(), &AUTHORIZATION).and_then(token) {
            Some(token) => Ok(Extracted::Key(Key::bytes(token))),
            None => Err(MissingKey::new(
                "there must be one header `authorization: Bearer` with a token",
            )
            .with_challenge("Bearer")),
        }
    }
}

fn token(credentials: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = credentials.split_at_checked("bearer".len())?;
    let token = rest.trim_ascii_start();
    let good = scheme.eq_ignore_ascii_case(b"bearer")
        && token.len() < rest.len()
        && !token.iter().any(u8::is_ascii_whitespace);
    good.then_some(token)
}

/// The value of a header that is there once and not empty.
fn only_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut lines = headers.get_all(name).into_iter();
    let value = lines.next()?.as_bytes().trim_ascii();
    (lines.next().is_none() && !value.is_empty()).then_some(value)
}

pub(super) fn parse_name(name: &str) -> Result<HeaderName, Error> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
        Error::new(format!(
            "`{}` cannot be the name of a header: expected letters, digits and hyphens, \
             as in `x-api-key`",
            name.escape_debug()
        ))
    })
}
