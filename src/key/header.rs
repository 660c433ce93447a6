//! Keys from a header.

use std::{fmt, sync::Arc};

use http::{HeaderMap, HeaderName, Request};

use super::{Extracted, Key, KeyExtractor, MissingKey};
use crate::error::Error;

/// Limits by the value of a header, such as an API key.
///
/// The value may be of any length and any bytes. Blanks around it are ignored, and an empty value counts as missing.
/// **A header with several lines counts as missing too**: the service might read another line than this extractor, so a
/// client could put a fresh key into the line that is limited.
///
/// A client may send any value. Limit by a header that an outer layer checks, or limit by address as well.
///
/// # Examples
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
/// assert_eq!(missing.detail(), "there must be one header `x-api-key` with a value");
/// ```
#[doc(alias = "api key")]
#[derive(Clone)]
pub struct Header {
    name: HeaderName,
    missing: Arc<str>,
}

impl Header {
    /// Creates an extractor for the header of this name, which is not case-sensitive.
    ///
    /// # Panics
    ///
    /// Panics if `name` is not a valid header name. For names from a configuration, use [`try_new`](Self::try_new).
    #[track_caller]
    pub fn new(name: &str) -> Self {
        match Self::try_new(name) {
            Ok(header) => header,
            Err(error) => panic!("{error}"),
        }
    }

    /// Creates an extractor for the header of this name, which is not case-sensitive.
    ///
    /// # Errors
    ///
    /// Returns an error if `name` is not a valid header name.
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

/// Returns the value of a header that has exactly one line and is not empty.
pub(super) fn only_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
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
