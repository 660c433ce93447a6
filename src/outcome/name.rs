//! The name of a policy.

use std::sync::Arc;

/// Text that is copied rather than shared where it is short.
///
/// Every outcome carries a name or two: a count of references would have all threads write one place.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Name {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Arc<str>),
}

const SHORT: usize = 22;

impl Name {
    pub(super) fn new(text: &str) -> Self {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..text.len()) {
            Some(room) => {
                room.copy_from_slice(text.as_bytes());
                Self::Short {
                    length: text.len() as u8,
                    bytes,
                }
            }
            None => Self::Long(text.into()),
        }
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => &bytes[..usize::from(*length)],
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
