//! Keys from bearer tokens.

use http::{Request, header::AUTHORIZATION};

use super::{Extracted, Key, KeyExtractor, MissingKey, header::only_value};

/// Limits by the token in `Authorization: Bearer …` (RFC 6750 §2.1).
///
/// The scheme is not case-sensitive. The token may contain any bytes except blanks, which is more than the RFC allows. It
/// is not checked: a client that sends a fresh token gets a fresh budget, unless an outer layer rejects unknown tokens.
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
        match only_value(req.headers(), &AUTHORIZATION).and_then(token) {
            Some(token) => Ok(Extracted::Key(Key::bytes(token))),
            None => Err(MissingKey::new(
                "there must be one header `authorization: Bearer` with a token",
            )
            .with_challenge("Bearer")),
        }
    }
}

/// Returns the token of `Bearer` credentials.
pub(super) fn token(credentials: &[u8]) -> Option<&[u8]> {
    let rest = after_scheme(credentials)?;
    let token = rest.trim_ascii_start();
    let good = token.len() < rest.len() && !token.iter().any(u8::is_ascii_whitespace);
    good.then_some(token)
}

/// Returns `true` if the scheme is `Bearer`, also without a valid token.
#[cfg(feature = "introspect")]
pub(super) fn is_bearer(credentials: &[u8]) -> bool {
    let is_end = |rest: &[u8]| rest.first().is_none_or(u8::is_ascii_whitespace);
    after_scheme(credentials).is_some_and(is_end)
}

fn after_scheme(credentials: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = credentials.split_at_checked("bearer".len())?;
    scheme.eq_ignore_ascii_case(b"bearer").then_some(rest)
}
