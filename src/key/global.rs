//! One key for all requests.

use super::{Extracted, Key, KeyExtractor, MissingKey};

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
