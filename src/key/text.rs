//! The content of a key as text: for logs, and as the name of a remote store's entry.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
};

#[cfg(feature = "tokio")]
use super::DIGEST;
use super::{DIGESTED, INLINE, Key, KeyKind};

impl KeyKind {
    fn name(self) -> &'static str {
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

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}", KeyKind::from_byte(self.kind()).name())?;
        if self.is_labelled() {
            f.write_str(" ")?;
            write_content(f, self.kind(), self.content(&mut [0; INLINE]))?;
        }
        f.write_str(")")
    }
}

fn write_content(f: &mut fmt::Formatter<'_>, head: u8, content: &[u8]) -> fmt::Result {
    if head & DIGESTED != 0 {
        return content.iter().try_for_each(|byte| write!(f, "{byte:02x}"));
    }
    match KeyKind::from_byte(head) {
        KeyKind::Number => {
            let number = content.try_into().map_or(0, u64::from_le_bytes);
            write!(f, "{number}")
        }
        KeyKind::V4 => {
            let octets: [u8; 4] = content.try_into().unwrap_or_default();
            write!(f, "{}", Ipv4Addr::from(octets))
        }
        KeyKind::V6 => {
            let octets: [u8; 16] = content.try_into().unwrap_or_default();
            write!(f, "{}", Ipv6Addr::from(octets))
        }
        KeyKind::Joined => write_parts(f, content),
        KeyKind::Global | KeyKind::Text | KeyKind::Bytes | KeyKind::Shared => {
            write!(f, "{}", content.escape_ascii())
        }
    }
}

fn write_parts(f: &mut fmt::Formatter<'_>, mut parts: &[u8]) -> fmt::Result {
    let mut comma = "";
    while let [head, len, rest @ ..] = parts {
        let (content, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        write!(f, "{comma}{} ", KeyKind::from_byte(*head).name())?;
        write_content(f, *head, content)?;
        (parts, comma) = (rest, ", ");
    }
    Ok(())
}

/// A key as the name of a remote store's entry: a digest of 128 bits in hexadecimal digits, or the
/// label.
#[cfg(feature = "tokio")]
struct StoredKey(Key);

#[cfg(feature = "tokio")]
impl Key {
    /// Displays the key as the name of a remote store's entry.
    pub(crate) fn stored(&self) -> impl fmt::Display {
        StoredKey(*self)
    }
}

#[cfg(feature = "tokio")]
impl fmt::Display for StoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(key) = self;
        let content = &mut [0; INLINE];
        let content = key.content(content);
        if key.is_labelled() {
            // Braces are escaped: Redis Cluster selects the slot by the text between braces.
            write!(f, "{}=", KeyKind::from_byte(key.kind()).name())?;
            return content.escape_ascii().try_for_each(|byte| match byte {
                b'{' | b'}' => write!(f, "\\x{byte:02x}"),
                _ => write!(f, "{}", char::from(byte)),
            });
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&key.head().to_le_bytes());
        hasher.update(content);
        let digest = hasher.finalize();
        let hex = digest.to_hex();
        f.write_str(&hex[..2 * DIGEST])
    }
}
