//! Keys from a cookie.

use std::{borrow::Cow, fmt, sync::Arc};

use http::{Request, header::COOKIE};

use super::{Extracted, Key, KeyExtractor, MissingKey};
use crate::error::Error;

/// Limits by the value of a cookie, such as a session.
///
/// All `Cookie` lines are read: HTTP/2 may send one for each cookie (RFC 9113 §8.2.3). Of the value, blanks and quotes around it
/// are ignored and percent-escapes are decoded, because many servers read cookies so: otherwise a client could spell one session in
/// many ways, each with a budget of its own. An empty value counts as missing. **A cookie that is there twice with different values
/// counts as missing too**: the service might read the other one.
///
/// A client may send any value. Limit by a cookie that an outer layer checks, or limit by address as well.
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
/// assert_eq!(by_session.extract(&request), Ok(Extracted::Key(Key::bytes(b"8f3a"))));
/// assert_eq!(by_session.extract(&Request::new(())), Ok(Extracted::Key(Key::shared("anonymous"))));
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
    /// Panics if `name` is not a valid name of a cookie. For names from a configuration, use [`try_new`](Self::try_new).
    #[track_caller]
    pub fn new(name: &str) -> Self {
        match Self::try_new(name) {
            Ok(cookie) => cookie,
            Err(error) => panic!("{error}"),
        }
    }

    /// Creates an extractor for the cookie of this name, which is case-sensitive.
    ///
    /// # Errors
    ///
    /// Returns an error if `name` is not a token (RFC 6265 §4.1.1).
    pub fn try_new(name: &str) -> Result<Self, Error> {
        if name.is_empty() || !name.bytes().all(is_token) {
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

    /// Returns the value, if all lines together have exactly one.
    fn value<'a, B>(&self, req: &'a Request<B>) -> Option<Cow<'a, [u8]>> {
        let lines = req.headers().get_all(COOKIE).into_iter();
        let mut values = lines
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
            .filter_map(|pair| {
                let equals = pair.iter().position(|byte| *byte == b'=')?;
                let (name, value) = pair.split_at(equals);
                (name.trim_ascii() == self.name.as_bytes()).then(|| decoded(unquoted(&value[1..])))
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
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn unquoted(value: &[u8]) -> &[u8] {
    let value = value.trim_ascii();
    let inner = value.strip_prefix(b"\"");
    inner
        .and_then(|inner| inner.strip_suffix(b"\""))
        .unwrap_or(value)
}

/// Decodes percent-escapes. What is not one stays as it is.
fn decoded(value: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = value.iter().position(|byte| *byte == b'%') else {
        return value.into();
    };
    let (plain, mut rest) = value.split_at(first);
    let mut decoded = plain.to_vec();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    while let [byte, after @ ..] = rest {
        rest = after;
        decoded.push(match (*byte, after) {
            (b'%', [high, low, after @ ..]) if digit(*high).and(digit(*low)).is_some() => {
                rest = after;
                let hex = [*high, *low].map(|byte| digit(byte).unwrap_or(0) as u8);
                hex[0] << 4 | hex[1]
            }
            _ => *byte,
        });
    }
    decoded.into()
}
