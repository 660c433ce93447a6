//! The name of a policy.

use std::sync::Arc;

/// Text of which up to 24 bytes are copied, and longer ones shared.
///
/// Every outcome carries a name or two, and all threads would write one reference count.
// Words, as in all of a policy: bytes that were just written one by one are slow to copy in words.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Name {
    Short { length: u64, words: [u64; 3] },
    Long(Arc<str>),
}

impl Name {
    pub(super) fn new(text: &str) -> Self {
        let mut words = [0; 3];
        match bytemuck::bytes_of_mut(&mut words).get_mut(..text.len()) {
            Some(bytes) => {
                bytes.copy_from_slice(text.as_bytes());
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
            // It was made from text.
            Self::Short { .. } => std::str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Self::Long(text) => text,
        }
    }
}
