//! One of the most frequent keys.

use crate::key::Key;

/// A key with its estimated count, from [`TopKeys::top`](super::TopKeys::top).
///
/// ```
/// use tollgate::observe::TopKeys;
///
/// let keys = TopKeys::new(100).labelled_by(|key| format!("{key:?}"));
/// keys.record_many(&"alice".into(), 3);
///
/// let top = &keys.top(1)[0];
/// assert_eq!((top.label(), top.count(), top.error()), ("Key(text)", 3, 0));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKey {
    pub(super) key: Key,
    pub(super) label: String,
    pub(super) count: u64,
    pub(super) error: u64,
}

impl TopKey {
    /// Returns the key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the text for people: the [user's](super::TopKeys::labelled_by), or the key's digest in hexadecimal digits.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the estimated count. It is never below the true one.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the most by which the count can be too high. The true count is at least `count() - error()`.
    pub fn error(&self) -> u64 {
        self.error
    }
}
