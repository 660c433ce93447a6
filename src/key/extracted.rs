//! The result of an extractor.

use super::Key;

/// The result of a [`KeyExtractor`](super::KeyExtractor): a key, or an exemption.
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
