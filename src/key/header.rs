//! Keys from header fields: a field of any name, a bearer token, a cookie.

use std::{borrow::Cow, fmt, sync::Arc};

use http::{
    HeaderMap, HeaderName, Request,
    header::{AUTHORIZATION, COOKIE},
};

use super::{Extracted, Key, KeyExtractor, MissingKey};
use crate::error::{Error, or_panic};

/// Limits by the value of a header, such as an API key.
///
/// The value may be of any length and any bytes. Blanks around it are ignored, and an empty value
/// counts as missing. **A header with several lines counts as missing too**: the service might read
/// another line than this extractor, so a client could put a fresh key into the line that is
/// limited.
///
/// A client may send any value. Limit by a header that an outer layer checks, or limit by address
/// as well.
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
    /// Panics if `name` is not a valid header name. For names from a configuration, use
    /// [`try_new`](Self::try_new).
    #[track_caller]
    pub fn new(name: &str) -> Self {
        or_panic(Self::try_new(name))
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
pub(crate) fn only_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
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

/// Limits by the token in `Authorization: Bearer …` (RFC 6750 §2.1).
///
/// The scheme is not case-sensitive. The token may contain any bytes except blanks, which is more
/// than the RFC allows. It is not checked: a client that sends a fresh token gets a fresh budget,
/// unless an outer layer rejects unknown tokens.
///
/// A request without a token is refused with 401 and the challenge `Bearer`.
///
/// # Examples
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
#[doc(alias = "authorization")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BearerToken;

impl<B> KeyExtractor<Request<B>> for BearerToken {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        match only_value(req.headers(), &AUTHORIZATION).and_then(bearer_token) {
            Some(token) => Ok(Extracted::Key(Key::bytes(token))),
            None => Err(MissingKey::new(
                "there must be one header `authorization: Bearer` with a token",
            )
            .with_challenge("Bearer")),
        }
    }
}

/// Returns the token of `Bearer` credentials.
pub(crate) fn bearer_token(credentials: &[u8]) -> Option<&[u8]> {
    let rest = after_scheme(credentials)?;
    let token = rest.trim_ascii_start();
    let good = token.len() < rest.len() && !token.iter().any(u8::is_ascii_whitespace);
    good.then_some(token)
}

/// Returns `true` if the scheme of the credentials is `Bearer`, with or without a valid token.
#[cfg(feature = "introspect")]
pub(crate) fn has_bearer_scheme(credentials: &[u8]) -> bool {
    let is_end = |rest: &[u8]| rest.first().is_none_or(u8::is_ascii_whitespace);
    after_scheme(credentials).is_some_and(is_end)
}

fn after_scheme(credentials: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = credentials.split_at_checked("bearer".len())?;
    scheme.eq_ignore_ascii_case(b"bearer").then_some(rest)
}

/// Limits by the value of a cookie, such as a session.
///
/// All `Cookie` lines are read: HTTP/2 may send one for each cookie (RFC 9113 §8.2.3). Blanks
/// around name and value, and quotes around the value, are ignored, and percent-escapes in both are
/// decoded, because many servers read cookies so: otherwise a client could spell one session in
/// many ways, each with a budget of its own. Escapes in the configured name are decoded, too. An
/// empty value counts as missing. **A cookie that is there twice with different values counts as
/// missing too**: the service might read the other one.
///
/// A client may send any value. Limit by a cookie that an outer layer checks, or limit by address
/// as well.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::key::{Cookie, Extracted, Key, KeyExtractor, KeyExtractorExt};
///
/// let by_session = Cookie::new("session").or_shared("anonymous");
/// let request = Request::builder()
///     .header("cookie", "lang=en")
///     .header("cookie", "theme=dark; session=8f3a")
///     .body(())
///     .unwrap();
/// assert_eq!(
///     by_session.extract(&request),
///     Ok(Extracted::Key(Key::bytes(b"8f3a")))
/// );
/// assert_eq!(
///     by_session.extract(&Request::new(())),
///     Ok(Extracted::Key(Key::shared("anonymous")))
/// );
/// ```
#[doc(alias("session", "cookies"))]
#[derive(Clone)]
pub struct Cookie {
    name: Arc<str>,
    missing: Arc<str>,
}

impl Cookie {
    /// Creates an extractor for the cookie of this name, which is case-sensitive.
    ///
    /// # Panics
    ///
    /// Panics if `name` is not a valid name of a cookie. For names from a configuration, use
    /// [`try_new`](Self::try_new).
    #[track_caller]
    pub fn new(name: &str) -> Self {
        or_panic(Self::try_new(name))
    }

    /// Creates an extractor for the cookie of this name, which is case-sensitive.
    ///
    /// # Errors
    ///
    /// Returns an error if `name` is not a token (RFC 6265 §4.1.1).
    pub fn try_new(name: &str) -> Result<Self, Error> {
        if name.is_empty() || !name.bytes().all(is_token_byte) {
            return Err(Error::new(format!(
                "`{}` cannot be the name of a cookie: expected letters, digits, hyphens and underscores, as in `session_id`",
                name.escape_debug()
            )));
        }
        Ok(Self {
            name: name.into(),
            missing: format!("there must be one cookie `{name}` with a value").into(),
        })
    }

    /// Returns the value of the cookie; `None` if it is missing, empty, or there twice with
    /// different values.
    fn value<'a, B>(&self, req: &'a Request<B>) -> Option<Cow<'a, [u8]>> {
        let lines = req.headers().get_all(COOKIE).into_iter();
        let own_name = percent_decoded(self.name.as_bytes(), |_| false);
        let mut values = lines
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
            .filter_map(|pair| {
                let equals = pair.iter().position(|byte| *byte == b'=')?;
                let (name, value) = pair.split_at(equals);
                (percent_decoded(name.trim_ascii(), |_| false) == own_name)
                    .then(|| percent_decoded(unquoted(&value[1..]), |_| false))
            });
        let value = values.next().filter(|value| !value.is_empty())?;
        values.all(|another| another == value).then_some(value)
    }
}

impl<B> KeyExtractor<Request<B>> for Cookie {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        match self.value(req) {
            Some(value) => Ok(Extracted::Key(Key::bytes(&value))),
            None => Err(MissingKey::shared(&self.missing)),
        }
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cookie").field(&self.name).finish()
    }
}

/// Returns `true` for a byte of a token (RFC 9110 §5.6.2).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn unquoted(value: &[u8]) -> &[u8] {
    let value = value.trim_ascii();
    let inner = value.strip_prefix(b"\"");
    inner
        .and_then(|inner| inner.strip_suffix(b"\""))
        .unwrap_or(value)
}

/// Decodes percent-escapes, but for invalid ones and those of bytes that are to be kept.
pub(crate) fn percent_decoded(value: &[u8], is_kept: fn(u8) -> bool) -> Cow<'_, [u8]> {
    let Some(first) = value.iter().position(|byte| *byte == b'%') else {
        return value.into();
    };
    let (plain, mut rest) = value.split_at(first);
    let mut decoded = plain.to_vec();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    while let [byte, after @ ..] = rest {
        let digits = match after {
            [high, low, ..] if *byte == b'%' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        let code = digits.map(|(high, low)| high << 4 | low);
        let code = code.filter(|code| !is_kept(*code));
        decoded.push(code.unwrap_or(*byte));
        rest = code.and(after.get(2..)).unwrap_or(after);
    }
    decoded.into()
}
