//! The name of a policy.

use std::sync::Arc;

/// Text that is copied rather than shared where it is short.
///
/// Every outcome carries a name or two: a count of references would have all threads write one place.
// In words, and so is all of a policy: what was copied in bytes an instant before is slow to copy in words.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Name {
    Short { length: u64, words: [u64; 3] },
    Long(Arc<str>),
}

impl Name {
    pub(super) fn new(text: &str) -> Self {
        let mut words = [0; 3];
        match bytemuck::bytes_of_mut(&mut words).get_mut(..text.len()) {
            Some(room) => {
                room.copy_from_slice(text.as_bytes());
                Self::Short {
                    length: text.len() as u64,
                    words,
                }
            }
            None => Self::Long(text.into()),
        }
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { length, words } => &bytemuck::bytes_of(words)[..*length as usize],
            Self::Long(text) => text.as_bytes(),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            // It was text.
            Self::Short { .. } => std::str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Self::Long(text) => text,
        }
    }
}
