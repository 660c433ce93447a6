//! The list of an outcome's entries.

use std::{mem, slice};

use super::entry::Entry;

/// A list that stores a single entry inline, because most requests have one limit.
// Not a `SmallVec`: an entry would be moved into its union, and is long to move.
#[derive(Clone, Default)]
#[expect(
    clippy::large_enum_variant,
    reason = "most lists are a single entry, which must not be allocated"
)]
pub(super) enum Entries {
    #[default]
    None,
    One(Entry),
    Several(Vec<Entry>),
}

impl Entries {
    #[inline]
    pub(super) fn as_slice(&self) -> &[Entry] {
        match self {
            Self::None => &[],
            Self::One(entry) => slice::from_ref(entry),
            Self::Several(entries) => entries,
        }
    }

    /// Appends the entries of another list.
    #[inline]
    pub(super) fn append(&mut self, other: Self) {
        if !other.as_slice().is_empty() {
            self.append_some(other);
        }
    }

    #[cold]
    fn append_some(&mut self, other: Self) {
        if self.as_slice().is_empty() {
            *self = other;
            return;
        }
        let mut entries = mem::take(self).into_vec();
        entries.append(&mut other.into_vec());
        *self = Self::Several(entries);
    }

    fn into_vec(self) -> Vec<Entry> {
        match self {
            Self::None => Vec::new(),
            Self::One(entry) => vec![entry],
            Self::Several(entries) => entries,
        }
    }
}

impl FromIterator<Entry> for Entries {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        Self::Several(entries.into_iter().collect())
    }
}
