//! The key itself: a small value without allocation.

use std::{
    fmt,
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Who is limited: a small `Copy` value, the same on every node.
///
/// Holds up to 40 bytes; of longer input it holds a BLAKE3 digest of 128 bits, which
/// costs no allocation either. Keys of different kinds never meet
/// (`Key::from("7")` is not `Key::from(7_u64)`), nor do joined keys whose parts
/// are cut elsewhere.
///
/// A key never prints what it holds, unless it is [labelled](Self::labelled).
///
/// ```
/// use tollgate::key::Key;
///
/// assert_ne!(Key::join(["a:b", "c"]), Key::join(["a", "b:c"]));
/// assert_eq!(format!("{:?}", Key::from("secret")), "Key(text)");
/// assert_eq!(format!("{:?}", Key::from("plan-7").labelled()), "Key(text plan-7)");
/// ```
#[derive(Clone, Copy)]
pub struct Key {
    bytes: [u8; INLINE],
    len: u8,
    kind: Kind,
    digested: bool,
    labelled: bool,
}

const INLINE: usize = 40;
const DIGEST: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
enum Kind {
    Global = 0,
    Text = 1,
    Bytes = 2,
    Number = 3,
    V4 = 4,
    V6 = 5,
    Joined = 6,
    Shared = 7,
}

impl Key {
    /// The one key that everybody shares.
    pub const GLOBAL: Self = Self {
        bytes: [0; INLINE],
        len: 0,
        kind: Kind::Global,
        digested: false,
        labelled: false,
    };

    #[inline]
    fn new(kind: Kind, input: &[u8]) -> Self {
        let mut key = Self { kind, ..Self::GLOBAL };
        if let Some(room) = key.bytes.get_mut(..input.len()) {
            room.copy_from_slice(input);
            key.len = input.len() as u8;
        } else {
            key.digest(blake3::hash(input));
        }
        key
    }

    #[cold]
    fn digest(&mut self, hash: blake3::Hash) {
        self.bytes = [0; INLINE];
        self.bytes[..DIGEST].copy_from_slice(&hash.as_bytes()[..DIGEST]);
        self.len = DIGEST as u8;
        self.digested = true;
    }

    /// A key of bytes, which never equals one of text.
    pub fn bytes(input: &[u8]) -> Self {
        Self::new(Kind::Bytes, input)
    }

    /// A key that clients without one of their own share, by name.
    ///
    /// Never equals a key that a client could send.
    pub fn shared(name: &str) -> Self {
        Self::new(Kind::Shared, name.as_bytes())
    }

    /// A key of several parts, unambiguous however they are cut.
    pub fn join<I>(parts: I) -> Self
    where
        I: IntoIterator<Item: Into<Self>>,
    {
        let mut joined = Joined::default();
        for part in parts {
            joined.push(part.into());
        }
        joined.finish()
    }

    /// The same key, whose content may be printed and stored in readable form.
    ///
    /// It still equals the one without a label. Long input stays a digest.
    #[must_use]
    pub fn labelled(mut self) -> Self {
        self.labelled = true;
        self
    }

    /// Whether the content may be printed.
    pub fn is_labelled(&self) -> bool {
        self.labelled
    }

    #[inline]
    fn content(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Kind, length, and content: equal bytes are equal keys, and no encoding is the
    /// beginning of another one.
    fn encoding(&self) -> ([u8; 2], &[u8]) {
        let kind = self.kind as u8 | if self.digested { 0x80 } else { 0 };
        ([kind, self.len], self.content())
    }
}

/// Parts one behind the other, each with its kind and length in front; hashed as soon as they
/// do not fit.
#[derive(Default)]
struct Joined {
    buffer: smallvec::SmallVec<[u8; INLINE]>,
    hasher: Option<Box<blake3::Hasher>>,
}

impl Joined {
    fn push(&mut self, part: Key) {
        let (head, content) = part.encoding();
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&head).update(content);
            return;
        }
        if self.buffer.len() + head.len() + content.len() > INLINE {
            let mut hasher = Box::new(blake3::Hasher::new());
            hasher.update(&self.buffer).update(&head).update(content);
            self.hasher = Some(hasher);
            return;
        }
        self.buffer.extend_from_slice(&head);
        self.buffer.extend_from_slice(content);
    }

    fn finish(self) -> Key {
        let mut key = Key::new(Kind::Joined, &self.buffer);
        if let Some(hasher) = self.hasher {
            key.digest(hasher.finalize());
        }
        key
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        // What lies behind `len` is zero in both.
        self.bytes == other.bytes && self.encoding().0 == other.encoding().0
    }
}

impl Eq for Key {}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (head, content) = self.encoding();
        state.write_u16(u16::from_le_bytes(head));
        state.write(content);
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::new(Kind::Text, text.as_bytes())
    }
}

impl From<&String> for Key {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<u64> for Key {
    fn from(number: u64) -> Self {
        Self::new(Kind::Number, &number.to_be_bytes())
    }
}

impl From<Ipv4Addr> for Key {
    #[inline]
    fn from(address: Ipv4Addr) -> Self {
        Self::new(Kind::V4, &address.octets())
    }
}

impl From<Ipv6Addr> for Key {
    #[inline]
    fn from(address: Ipv6Addr) -> Self {
        Self::new(Kind::V6, &address.octets())
    }
}

impl From<IpAddr> for Key {
    /// The address as it is; masking is the extractors' work.
    #[inline]
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Global => "global",
            Kind::Text => "text",
            Kind::Bytes => "bytes",
            Kind::Number => "number",
            Kind::V4 | Kind::V6 => "ip",
            Kind::Joined => "joined",
            Kind::Shared => "shared",
        };
        write!(f, "Key({kind}")?;
        if self.labelled {
            f.write_str(" ")?;
            self.write_content(f)?;
        }
        f.write_str(")")
    }
}

impl Key {
    fn write_content(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = self.content();
        if self.digested {
            return content.iter().try_for_each(|byte| write!(f, "{byte:02x}"));
        }
        match self.kind {
            Kind::Number => {
                let number = content.try_into().map_or(0, u64::from_be_bytes);
                write!(f, "{number}")
            }
            Kind::V4 => {
                let octets: [u8; 4] = content.try_into().unwrap_or_default();
                write!(f, "{}", Ipv4Addr::from(octets))
            }
            Kind::V6 => {
                let octets: [u8; 16] = content.try_into().unwrap_or_default();
                write!(f, "{}", Ipv6Addr::from(octets))
            }
            Kind::Global | Kind::Text | Kind::Bytes | Kind::Joined | Kind::Shared => {
                write!(f, "{}", content.escape_ascii())
            }
        }
    }
}
