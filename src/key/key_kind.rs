//! The kinds of keys.

/// The kind of a key. Keys of different kinds never equal each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub(super) enum KeyKind {
    Global = 0,
    Text = 1,
    Bytes = 2,
    Number = 3,
    V4 = 4,
    V6 = 5,
    Joined = 6,
    Shared = 7,
}

/// Marks a digest in the byte of the kind.
pub(super) const DIGESTED: u8 = 0x80;

impl KeyKind {
    /// Returns the kind in the byte of a key, whether or not the content is a digest.
    pub(super) fn from_byte(byte: u8) -> Self {
        match byte & !DIGESTED {
            1 => Self::Text,
            2 => Self::Bytes,
            3 => Self::Number,
            4 => Self::V4,
            5 => Self::V6,
            6 => Self::Joined,
            7 => Self::Shared,
            _ => Self::Global,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::Number => "number",
            Self::V4 | Self::V6 => "ip",
            Self::Joined => "joined",
            Self::Shared => "shared",
        }
    }
}
