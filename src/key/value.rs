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
    /// Kind, length, and content, one behind the other; zero behind the content. Equal bytes are
    /// equal keys, and no encoding is the beginning of another one.
    encoding: [u8; HEAD + INLINE],
    labelled: bool,
}

const HEAD: usize = 2;

const INLINE: usize = 40;
const DIGEST: usize = 16;
/// Marks a digest in the byte of the kind.
const DIGESTED: u8 = 0x80;
/// What four keys at their longest take up when they are joined.
const JOINED: usize = 4 * (HEAD + INLINE);

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
        encoding: [0; HEAD + INLINE],
        labelled: false,
    };

    #[inline]
    fn new(kind: Kind, input: &[u8]) -> Self {
        let mut key = Self::GLOBAL;
        match key.encoding[HEAD..].get_mut(..input.len()) {
            Some(room) => {
                room.copy_from_slice(input);
                key.encoding[0] = kind as u8;
                key.encoding[1] = input.len() as u8;
                key
            }
            None => Self::digest(kind, input),
        }
    }

    #[cold]
    fn digest(kind: Kind, input: &[u8]) -> Self {
        let mut key = Self::new(kind, &blake3::hash(input).as_bytes()[..DIGEST]);
        key.encoding[0] |= DIGESTED;
        key
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
    ///
    /// Allocates only for more than four parts.
    pub fn join<I>(parts: I) -> Self
    where
        I: IntoIterator<Item: Into<Self>>,
    {
        let mut joined = smallvec::SmallVec::<[u8; JOINED]>::new();
        for part in parts {
            joined.extend_from_slice(part.into().encoding());
        }
        Self::new(Kind::Joined, &joined)
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
    fn encoding(&self) -> &[u8] {
        &self.encoding[..HEAD + usize::from(self.encoding[1])]
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.encoding == other.encoding
    }
}

impl Eq for Key {}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.encoding());
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
        let (head, content) = (self.encoding[0], &self.encoding()[HEAD..]);
        write!(f, "Key({}", Kind::of(head).name())?;
        if self.labelled {
            f.write_str(" ")?;
            write_content(f, head, content)?;
        }
        f.write_str(")")
    }
}

impl Kind {
    fn of(head: u8) -> Self {
        match head & !DIGESTED {
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

fn write_content(f: &mut fmt::Formatter<'_>, head: u8, content: &[u8]) -> fmt::Result {
    if head & DIGESTED != 0 {
        return content.iter().try_for_each(|byte| write!(f, "{byte:02x}"));
    }
    match Kind::of(head) {
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
        Kind::Joined => write_parts(f, content),
        Kind::Global | Kind::Text | Kind::Bytes | Kind::Shared => {
            write!(f, "{}", content.escape_ascii())
        }
    }
}

fn write_parts(f: &mut fmt::Formatter<'_>, mut parts: &[u8]) -> fmt::Result {
    let mut comma = "";
    while let [head, len, rest @ ..] = parts {
        let (content, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        write!(f, "{comma}{} ", Kind::of(*head).name())?;
        write_content(f, *head, content)?;
        (parts, comma) = (rest, ", ");
    }
    Ok(())
}
